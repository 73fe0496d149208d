/* The parts of matrix products: panels of some rows and two vectors, which stay in registers while they are added up; see
 * K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.  And scratch memory.
 */

#include <stddef.h>
#include <stdlib.h>

/* ROWS of two vectors each leave registers for two vectors of one operand and a number of the other. */
#ifdef __AVX512F__
typedef float lanes __attribute__((vector_size(64)));
enum { LANES_OF = 16, ROWS = 12 };
#define TIMES_PLUS(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#else
typedef eight lanes;
enum { LANES_OF = 8, ROWS = 6 };
#define TIMES_PLUS(a, b, c) FMA8(a, b, c)
#endif
enum { PANEL = 2 * LANES_OF };

/* Whether these products pay.  Where a product and a sum are two operations, or vectors are short, BLAS is much faster. */
int64_t panels_pay(void) {
#if defined(__FMA__) && defined(__AVX__)
    return 1;
#else
    return 0;
#endif
}

#define INLINE static inline __attribute__((always_inline))

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t padded(int64_t count) { return (count + PANEL - 1) / PANEL * PANEL; }

INLINE lanes vector_at(const float *from) {
    lanes found;
    memcpy(&found, from, sizeof found);
    return found;
}

INLINE void put(float *to, lanes vector) { memcpy(to, &vector, sizeof vector); }

/* A square of LANES_OF vectors is transposed by exchanging ever larger parts of pairs of them. */
typedef int32_t places __attribute__((vector_size(sizeof(lanes))));
#ifdef __AVX512F__
#define PLACES ((places){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
#else
#define PLACES ((places){0, 1, 2, 3, 4, 5, 6, 7})
#endif
INLINE lanes chosen(lanes one, lanes other, places from) {
#if defined(__clang__)
    lanes found;
    for (int i = 0; i < LANES_OF; i++) found[i] = from[i] < LANES_OF ? one[from[i]] : other[from[i] - LANES_OF];
    return found;
#else
    return __builtin_shuffle(one, other, from);
#endif
}
INLINE void turn_square(lanes *of) {
#pragma GCC unroll 4
    for (int apart = 1; apart < LANES_OF; apart *= 2) {
        /* Written as vectors, since compilers would otherwise compute these indices at run time. */
        const places odd = (PLACES & apart) != 0, other_half = odd & LANES_OF;
        const places low = (PLACES ^ (odd & apart)) + other_half, high = (PLACES ^ (~odd & apart)) + other_half;
#pragma GCC unroll 16
        for (int i = 0; i < LANES_OF; i++)
            if (!(i & apart)) {
                const lanes one = of[i], other = of[i + apart];
                of[i] = chosen(one, other, low);
                of[i + apart] = chosen(one, other, high);
            }
    }
}

/* to[k * width + i] = from[i * row + k] * factor for i < rows, else 0.  Up to one vector more is written behind the last
 * element.  The next rows of `from` are prefetched, since they are likely to be read next. */
INLINE void turn(const float *from, int64_t row, int64_t rows, int64_t depth, float factor, const int64_t width,
                 float *to) {
    int64_t k = 0;
    for (; k + LANES_OF <= depth; k += LANES_OF)
        for (int64_t first = 0; first < width; first += LANES_OF) {
            lanes square[LANES_OF];
#pragma GCC unroll 16
            for (int i = 0; i < LANES_OF; i++) {
                __builtin_prefetch(from + (width + first + i) * row + k);
                square[i] = first + i < rows ? vector_at(from + (first + i) * row + k) * factor : (lanes){0};
            }
            turn_square(square);
            /* In order: where `width` is no whole number of vectors, the next one overwrites the end of this one. */
#pragma GCC unroll 16
            for (int i = 0; i < LANES_OF; i++) put(to + (k + i) * width + first, square[i]);
        }
    for (; k < depth; k++)
        for (int64_t i = 0; i < width; i++) to[k * width + i] = i < rows ? from[i * row + k] * factor : 0;
}

/* The product of `count` rows of `a`, of `depth` numbers, and `depth` rows of `b`, of one vector or two, goes to `c`; it is
 * added if `adds`.  The rows of `b` are copied to `kept`, one behind the other, unless that is NULL; the row `ahead` rows later
 * is prefetched, unless that is 0. */
INLINE void panel(const int count, const int vectors, const float *a, int64_t a_row, int64_t a_step, const float *b,
                  int64_t b_row, float *c, int64_t c_row, int64_t depth, int adds, float *kept, const int64_t ahead) {
    lanes sums[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < count; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sums[i][j] = (lanes){0};
    /* The targets are prefetched row by row: together, they would delay the operands.  Where rows of `a` are read side by
     * side, no registers are left for that. */
    const int64_t stretch = a_step == 1 ? depth : depth / count + 1;
    for (int64_t k = 0, row = 0; k < depth; row++) {
        for (int64_t i = row; i < (a_step == 1 ? count : row + 1); i++)
            for (int j = 0; j < vectors; j++) __builtin_prefetch(c + i * c_row + j * LANES_OF, 1);
        for (const int64_t end = least(k + stretch, depth); k < end; k++) {
            lanes of_b[2];
            for (int j = 0; j < vectors; j++) {
                of_b[j] = vector_at(b + k * b_row + j * LANES_OF);
                if (ahead) __builtin_prefetch(b + (k + ahead) * b_row + j * LANES_OF);
                if (!kept) continue;
                /* Rows of `b` may be too far apart for the processor to prefetch them, here and in the next panel. */
                for (int next = j; next < j + 4; next += 2) __builtin_prefetch(b + (k + 12) * b_row + next * LANES_OF);
                put(kept + k * PANEL + j * LANES_OF, of_b[j]);
            }
            for (int i = 0; i < count; i++) {
                const lanes each = a[i * a_row + k * a_step] - (lanes){0};
                for (int j = 0; j < vectors; j++) sums[i][j] = TIMES_PLUS(each, of_b[j], sums[i][j]);
            }
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < count; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            float *to = c + i * c_row + j * LANES_OF;
            put(to, adds ? vector_at(to) + sums[i][j] : sums[i][j]);
        }
}

/* Scratch memory.  Blocks that are not very large are kept for the next call, which first looks where its thread left one:
 * there are as many blocks as calls that ran at the same time, not as many as threads. */
struct scratch {
    int64_t have;
    float numbers[] __attribute__((aligned(64)));
};
enum { KEPT_BLOCKS = 64, KEPT_SCRATCH = 1 << 20 };
static struct scratch *kept_blocks[KEPT_BLOCKS];

static int64_t own_place(void) {
    static int64_t threads;
    static __thread int64_t own;
    if (!own) own = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED);
    return own;
}

/* Memory for so many numbers; NULL if there is none. */
static float *get_scratch(int64_t count) {
    const int64_t own = own_place();
    for (int64_t i = 0; i < KEPT_BLOCKS && count <= KEPT_SCRATCH; i++) {
        struct scratch **place = kept_blocks + (own + i) % KEPT_BLOCKS;
        if (!__atomic_load_n(place, __ATOMIC_RELAXED)) continue;
        struct scratch *kept = __atomic_exchange_n(place, NULL, __ATOMIC_ACQUIRE);
        if (kept && kept->have >= count) return kept->numbers;
        free(kept);
    }
    void *found;
    if (posix_memalign(&found, 64, sizeof(struct scratch) + (size_t)count * sizeof(float))) return NULL;
    ((struct scratch *)found)->have = count;
    return ((struct scratch *)found)->numbers;
}

static void free_scratch(float *numbers) {
    struct scratch *const scratch = (struct scratch *)((char *)numbers - offsetof(struct scratch, numbers));
    const int64_t own = own_place();
    for (int64_t i = 0; i < KEPT_BLOCKS && scratch->have <= KEPT_SCRATCH; i++) {
        struct scratch **place = kept_blocks + (own + i) % KEPT_BLOCKS, *nothing = NULL;
        if (__atomic_compare_exchange_n(place, &nothing, scratch, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) return;
    }
    free(scratch);
}
