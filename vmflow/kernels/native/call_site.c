/* Repeats calls of C kernels for other arrays that are laid out like those of the first call; see call_site.py.
 *
 * To inspect arrays from Python takes longer than many kernels do.  Here it takes a tenth of a microsecond. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "sizes and addresses are words of 64 bits");

typedef void (*kernel)(const int64_t *);
typedef void (*team)(const int64_t *, int64_t);

/* A call: `run` computes the words as a job; if it is NULL, `function` takes them.  The words follow, and then the arrays. */
struct call {
    team run;
    kernel function;
    int64_t is_long, words, arrays, written, in_place;
};

/* An array that a call accepts: the position of its address among the words, the bits of the address that must be 0, the dtype,
 * the offsets of its first byte and of the one behind its last, and its number of dimensions; shape and strides follow. */
struct wanted {
    int64_t place, unaligned;
    const void *dtype;
    int64_t low, high, dimensions;
};

/* Whether an array that is written shares bytes with another; with `in_place`, the two may be the same memory. */
static int overlaps(const struct wanted *one, const char *at, const struct wanted *other, const char *there, int in_place) {
    if (at + one->high <= there + other->low || there + other->high <= at + one->low) return 0;
    return !(in_place && at == there && one->low == other->low && one->high == other->high);
}

/* Repeat a call for a tuple of arrays.  Returns False, and does nothing, if they are not laid out as the call needs them. */
static PyObject *call_again(PyObject *known, PyObject *arrays) {
    const struct call *call = (const struct call *)PyBytes_AS_STRING(known);
    const int64_t *const words = (const int64_t *)(call + 1), *next = words + call->words;
    if (!PyTuple_CheckExact(arrays) || PyTuple_GET_SIZE(arrays) != call->arrays) Py_RETURN_FALSE;
    const struct wanted *wanted[call->arrays];
    const char *data[call->arrays];
    int64_t own[call->words];
    memcpy(own, words, sizeof own);
    for (int64_t i = 0; i < call->arrays; i++) {
        const struct wanted *const each = wanted[i] = (const struct wanted *)next;
        PyObject *const given = PyTuple_GET_ITEM(arrays, i);
        if (!PyArray_CheckExact(given)) Py_RETURN_FALSE;
        PyArrayObject *const array = (PyArrayObject *)given;
        const size_t size = each->dimensions * sizeof(int64_t);
        next = (const int64_t *)(each + 1);
        if ((const void *)PyArray_DESCR(array) != each->dtype || PyArray_NDIM(array) != each->dimensions) Py_RETURN_FALSE;
        /* numpy may give an array without dimensions a NULL shape. */
        if (size && memcmp(PyArray_DIMS(array), next, size)) Py_RETURN_FALSE;
        if (size && memcmp(PyArray_STRIDES(array), next + each->dimensions, size)) Py_RETURN_FALSE;
        if (i >= call->arrays - call->written && !PyArray_ISWRITEABLE(array)) Py_RETURN_FALSE;
        next += 2 * each->dimensions;
        data[i] = PyArray_BYTES(array);
        if ((int64_t)data[i] & each->unaligned) Py_RETURN_FALSE;
        own[each->place] = (int64_t)data[i];
    }
    for (int64_t i = call->arrays - call->written; i < call->arrays; i++)
        for (int64_t j = 0; j < i; j++)
            if (overlaps(wanted[i], data[i], wanted[j], data[j], call->in_place)) Py_RETURN_FALSE;
    /* The interpreter's lock is held up to here, so that no thread changes an array's shape meanwhile. */
    Py_BEGIN_ALLOW_THREADS
    if (call->run) call->run(own, call->is_long);
    else call->function(own);
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

static PyMethodDef again = {"again", call_again, METH_O, "Repeat the call for a tuple of arrays; whether that was possible."};

/* Returns a function that repeats the call that `known`, a bytes object, describes. */
static PyObject *remember(PyObject *module, PyObject *known) {
    if (!PyBytes_CheckExact(known)) {
        PyErr_Format(PyExc_TypeError, "a call is described by bytes, not by %R", (PyObject *)Py_TYPE(known));
        return NULL;
    }
    return PyCFunction_New(&again, known);
}

static PyMethodDef functions[] = {
    {"remember", remember, METH_O, "A function that repeats the call of a C kernel; see call_site.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_call_site", "Repeats calls of C kernels for other arrays.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__call_site(void) {
    import_array();
    return PyModule_Create(&module);
}
