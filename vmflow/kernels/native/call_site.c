/* Calls that are made again for other arrays, if these lie as those of the first time; see call_site.py.
 *
 * `call_again` is called as a function of Python's, which takes a tenth of the time that ctypes takes to call it. */

#include <stdint.h>
#include <string.h>

typedef void (*kernel)(const int64_t *);
typedef void (*team)(const int64_t *, int64_t);

/* Of Python, whose functions are handed over by `call_site_begin`: it need not be there as a library, nor its headers. */
typedef struct object object;

static struct {
    void *(*let_go)(void);      /* PyEval_SaveThread */
    void (*take_up)(void *);    /* PyEval_RestoreThread */
    void *(*address)(object *); /* PyLong_AsVoidPtr */
    object *(*truth)(long);     /* PyBool_FromLong */
} python;

/* What lies behind the head of any object in one of numpy's arrays. */
struct array {
    const char *data;
    int dimensions;
    const int64_t *shape, *strides;
    const void *base, *dtype;
    int flags;
};

/* Of these flags; and of those of functions of Python's, that they have one argument. */
enum { WRITEABLE = 0x400, ONE_ARGUMENT = 0x8 };

/* A call: `run` computes the words as a job, or without it `function` takes them.  `head` is how many bytes any object
 * begins with, the last of them its type; in a tuple there follows how many items it has, and these are at `items`. */
struct call {
    team run;
    kernel function;
    int64_t is_long, words, arrays, written, in_place, head, items;
};

/* Of each array: which of the words is its address, which bits of that must be 0, its type and dtype, which of its bytes are the first and the one behind
 * the last, and how many dimensions it has, behind which its shape and strides follow. */
struct wanted {
    int64_t place, unaligned;
    const void *type, *dtype;
    int64_t low, high, dimensions;
};

/* Whether an array that is to be written has bytes in common with another, unless it lies just there and may. */
static int in_the_way(const struct wanted *one, const char *at, const struct wanted *other, const char *there, int in_place) {
    if (at + one->high <= there + other->low || there + other->high <= at + one->low) return 0;
    return !(in_place && at == there && one->low == other->low && one->high == other->high);
}

/* Make a call again for a tuple of arrays; whether they lie as it needs them, for else nothing is done.  The first is the
 * address of what is known of the call. */
object *call_again(object *known, const char *arrays) {
    const struct call *it = python.address(known);
    const int64_t *const words = (const int64_t *)(it + 1), *next = words + it->words;
    const char *const *const objects = (const char *const *)(arrays + it->items);
    const struct wanted *wanted[it->arrays];
    const char *data[it->arrays];
    int64_t own[it->words];
    if (*(const int64_t *)(arrays + it->head) != it->arrays) return python.truth(0);
    memcpy(own, words, sizeof own);
    for (int64_t i = 0; i < it->arrays; i++) {
        const struct wanted *const each = wanted[i] = (const struct wanted *)next;
        const struct array *const array = (const struct array *)(objects[i] + it->head);
        const size_t size = each->dimensions * sizeof(int64_t);
        next = (const int64_t *)(each + 1);
        if (((const void *const *)array)[-1] != each->type || array->dtype != each->dtype) return python.truth(0);
        if ((int64_t)array->data & each->unaligned || array->dimensions != each->dimensions) return python.truth(0);
        /* Of an array without dimensions there may be no shape, not even an address of one. */
        if (size && memcmp(array->shape, next, size)) return python.truth(0);
        if (size && memcmp(array->strides, next + each->dimensions, size)) return python.truth(0);
        if (i >= it->arrays - it->written && !(array->flags & WRITEABLE)) return python.truth(0);
        next += 2 * each->dimensions;
        own[each->place] = (int64_t)(data[i] = array->data);
    }
    for (int64_t i = it->arrays - it->written; i < it->arrays; i++)
        for (int64_t j = 0; j < i; j++)
            if (in_the_way(wanted[i], data[i], wanted[j], data[j], it->in_place)) return python.truth(0);
    /* Until here the interpreter's lock is held, so that nobody changes an array's shape meanwhile. */
    void *const thread = python.let_go();
    if (it->run) it->run(own, it->is_long);
    else it->function(own);
    python.take_up(thread);
    return python.truth(1);
}

/* As Python describes functions in C, which it looks at whenever one made of this goes, to the very end. */
static const struct {
    const char *name;
    object *(*function)(object *, const char *);
    int flags;
    const char *doc;
} method = {"call_again", call_again, ONE_ARGUMENT, NULL};

/* Take what is needed of Python, in the order in which it stands above; what functions of Python's are to be made of. */
const void *call_site_begin(void *const *functions) {
    memcpy(&python, functions, sizeof python);
    return &method;
}
