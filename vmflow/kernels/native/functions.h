/* Shared by all kernels.  The source goes on with functions of one element, which the compiler can vectorise. */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Conditions that the callers have checked.  Builds with VMFLOW_CHECKS, which are for tests, check them again, and end the
 * process with a message if one is false. */
#ifdef VMFLOW_CHECKS
#include <stdio.h>
#include <stdlib.h>
#define EXPECT(condition)                                                                                                      \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fprintf(stderr, "vmflow: %s was called with invalid arguments; expected %s\n", __func__, #condition);              \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)
#else
#define EXPECT(condition) ((void)0)
#endif

/* Whether a pointer is not NULL and aligned for its elements. */
#define IS_AT(from) ((from) != NULL && (uintptr_t)(from) % sizeof *(from) == 0)
#define IS_AT_OR_NULL(from) ((from) == NULL || IS_AT(from))

#if defined(__clang__)
#define LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES _Pragma("GCC ivdep")
#endif

#define ALWAYS static inline __attribute__((always_inline)) void

/* Loops over elements go block by block, and prefetch AHEAD bytes further on in each block: processors prefetch by themselves,
 * but too late where each element takes long to compute. */
enum { BLOCK = 64, AHEAD = 2048, CACHE_LINE = 64 };

static inline __attribute__((always_inline)) void will_read(const void *from, int64_t nbytes) {
    for (int64_t i = 0; i < nbytes; i += CACHE_LINE) __builtin_prefetch((const char *)from + AHEAD + i, 0);
}

static inline __attribute__((always_inline)) void will_write(const void *to, int64_t nbytes) {
    for (int64_t i = 0; i < nbytes; i += CACHE_LINE) __builtin_prefetch((const char *)to + AHEAD + i, 1);
}

/* Results that are too large for the cache are better written past it, in whole blocks: otherwise each line is read before it
 * is written.  Call `streamed` after the last block. */
#if defined(__SSE2__)
#define STREAMS
#include <immintrin.h>
static inline void stream(void *to, const void *from, int64_t nbytes) {
#if defined(__AVX__)
    for (int64_t i = 0; i < nbytes; i += 32)
        _mm256_stream_si256((__m256i *)((char *)to + i), _mm256_load_si256((const __m256i *)((const char *)from + i)));
#else
    for (int64_t i = 0; i < nbytes; i += 16)
        _mm_stream_si128((__m128i *)((char *)to + i), _mm_load_si128((const __m128i *)((const char *)from + i)));
#endif
}
static inline void streamed(void) { _mm_sfence(); }
#endif

/* A fused multiply-add, if the processor has it; where FMA is not written, a product and a sum remain two operations. */
#ifdef __FMA__
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

#define INF __builtin_inff()

#define INLINED static inline

static inline float of_bits(int32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline int32_t bits_of(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
