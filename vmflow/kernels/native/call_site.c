/* Calls of C kernels that are made again for other arrays, if these lie as those of the first time; see call_site.py.
 *
 * To look at arrays from Python takes longer than many kernels do.  Here it takes a tenth of a microsecond. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(npy_intp) == sizeof(int64_t), "sizes and addresses are words of 64 bits");

typedef void (*kernel)(const int64_t *);
typedef void (*team)(const int64_t *, int64_t);

/* A call: `run` computes the words as a job, or without it `function` takes them.  The words follow, and then the arrays. */
struct call {
    team run;
    kernel function;
    int64_t is_long, words, arrays, written, in_place;
};

/* Of each array: which of the words is its address, which bits of that must be 0, its dtype, which of its bytes are the
 * first and the one behind the last, and how many dimensions it has, behind which its shape and strides follow. */
struct wanted {
    int64_t place, unaligned;
    const void *dtype;
    int64_t low, high, dimensions;
};

/* Whether an array that is to be written has bytes in common with another, unless it lies just there and may. */
static int in_the_way(const struct wanted *one, const char *at, const struct wanted *other, const char *there, int in_place) {
    if (at + one->high <= there + other->low || there + other->high <= at + one->low) return 0;
    return !(in_place && at == there && one->low == other->low && one->high == other->high);
}

/* Make a call again for a tuple of arrays; whether they lie as it needs them, for else nothing is done. */
static PyObject *call_again(PyObject *known, PyObject *arrays) {
    const struct call *it = (const struct call *)PyBytes_AS_STRING(known);
    const int64_t *const words = (const int64_t *)(it + 1), *next = words + it->words;
    if (!PyTuple_CheckExact(arrays) || PyTuple_GET_SIZE(arrays) != it->arrays) Py_RETURN_FALSE;
    const struct wanted *wanted[it->arrays];
    const char *data[it->arrays];
    int64_t own[it->words];
    memcpy(own, words, sizeof own);
    for (int64_t i = 0; i < it->arrays; i++) {
        const struct wanted *const each = wanted[i] = (const struct wanted *)next;
        PyObject *const given = PyTuple_GET_ITEM(arrays, i);
        if (!PyArray_CheckExact(given)) Py_RETURN_FALSE;
        PyArrayObject *const array = (PyArrayObject *)given;
        const size_t size = each->dimensions * sizeof(int64_t);
        next = (const int64_t *)(each + 1);
        if ((const void *)PyArray_DESCR(array) != each->dtype || PyArray_NDIM(array) != each->dimensions) Py_RETURN_FALSE;
        /* An array without dimensions may have no shape, not even an address of one. */
        if (size && memcmp(PyArray_DIMS(array), next, size)) Py_RETURN_FALSE;
        if (size && memcmp(PyArray_STRIDES(array), next + each->dimensions, size)) Py_RETURN_FALSE;
        if (i >= it->arrays - it->written && !PyArray_ISWRITEABLE(array)) Py_RETURN_FALSE;
        next += 2 * each->dimensions;
        data[i] = PyArray_BYTES(array);
        if ((int64_t)data[i] & each->unaligned) Py_RETURN_FALSE;
        own[each->place] = (int64_t)data[i];
    }
    for (int64_t i = it->arrays - it->written; i < it->arrays; i++)
        for (int64_t j = 0; j < i; j++)
            if (in_the_way(wanted[i], data[i], wanted[j], data[j], it->in_place)) Py_RETURN_FALSE;
    /* Until here the interpreter's lock is held, so that nobody changes an array's shape meanwhile. */
    Py_BEGIN_ALLOW_THREADS
    if (it->run) it->run(own, it->is_long);
    else it->function(own);
    Py_END_ALLOW_THREADS
    Py_RETURN_TRUE;
}

static PyMethodDef again = {"again", call_again, METH_O, "Make the call for a tuple of arrays; whether that was possible."};

/* A function that makes a call again; it is given the bytes that describe the call. */
static PyObject *remember(PyObject *module, PyObject *known) {
    if (!PyBytes_CheckExact(known)) {
        PyErr_Format(PyExc_TypeError, "a call is described by bytes, not by %R", (PyObject *)Py_TYPE(known));
        return NULL;
    }
    return PyCFunction_New(&again, known);
}

static PyMethodDef functions[] = {
    {"remember", remember, METH_O, "A function that makes the call of a C kernel again; see call_site.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_call_site", "Calls of C kernels that are made again for other arrays.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__call_site(void) {
    import_array();
    return PyModule_Create(&module);
}
