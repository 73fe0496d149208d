/* What all kernels share: functions of one element that the compiler can put into the lanes of a vector.
 *
 * No branches, no calls, no tables.  What is not said to be exact is within 2 units in the last place; what is gives the
 * results of numpy to the bit, wherever numpy uses its own vector code: the same operations in the same order, with the
 * coefficients of its rational approximations (numpy, BSD licence, _core/src/umath/loops_exponent_log.dispatch.c.src).
 */

#include <stdint.h>
#include <string.h>

#if defined(__clang__)
#define LANES _Pragma("clang loop vectorize(assume_safety)")
#else
#define LANES _Pragma("GCC ivdep")
#endif

/* Only where these approximations say so: elsewhere a product and a sum stay two operations. */
#ifdef __FMA__
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

#define INF __builtin_inff()
/* As processors make it. */
#define NOT_A_NUMBER (-__builtin_nanf(""))

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

static inline float nearest_integer(float x) {
    return (x + 12582912.0f) - 12582912.0f;
}

/* x * 2 ** k, rounded once also where the result is denormal; |k| up to 252. */
static inline float scaled(float x, int32_t k) {
    int32_t half = k >> 1;
    return x * of_bits((half + 127) << 23) * of_bits((k - half + 127) << 23);
}

/* Exact. */
static inline float exp_f(float x) {
    const float most = 88.72283935546875f, least = -103.97208404541015625f;
    float within = x > most ? most : x;
    within = within < least ? least : within;
    float power = nearest_integer(within * 1.442695040888963407f);
    float rest = FMA(power, -6.93145752e-1f, within);
    rest = FMA(power, -1.42860677e-6f, rest);
    float top = FMA(5.082762527590693718096e-04f, rest, 6.757896990527504603057e-03f);
    top = FMA(top, rest, 5.114512081637298353406e-02f);
    top = FMA(top, rest, 2.473615434895520810817e-01f);
    top = FMA(top, rest, 7.257664613233124478488e-01f);
    top = FMA(top, rest, 9.999999999980870924916e-01f);
    float bottom = FMA(2.159509375685829852307e-02f, rest, -2.742335390411667452936e-01f);
    bottom = FMA(bottom, rest, 1.0f);
    float result = scaled(top / bottom, (int32_t)power);
    result = x > most ? INF : result;
    result = x < least ? 0.0f : result;
    return x != x ? x : result;
}

/* Exact. */
static inline float log_f(float x) {
    int32_t tiny = x < 1.17549435e-38f;
    float normal = tiny ? x * 33554432.0f : x;
    int32_t bits = bits_of(normal);
    int32_t exponent = ((bits >> 23) & 0xff) - 127 - (tiny ? 25 : 0);
    float fraction = of_bits((bits & 0x7fffff) | 0x3f800000);
    int32_t large = fraction > 1.414213562373095049f;
    float rest = (large ? fraction * 0.5f : fraction) - 1.0f;
    float power = (float)(exponent + (large ? 1 : 0));
    float top = FMA(2.589979117907922693523e-02f, rest, 3.808837741388407920751e-01f);
    top = FMA(top, rest, 1.480000633576506585156e+00f);
    top = FMA(top, rest, 2.112677543073053063722e+00f);
    top = FMA(top, rest, 9.999999999999998702752e-01f);
    top = FMA(top, rest, 0.0f);
    float bottom = FMA(5.875095403124574342950e-03f, rest, 1.546476374983906719538e-01f);
    bottom = FMA(bottom, rest, 9.864942958519418960339e-01f);
    bottom = FMA(bottom, rest, 2.453006071784736363091e+00f);
    bottom = FMA(bottom, rest, 2.612677543073109236779e+00f);
    bottom = FMA(bottom, rest, 1.0f);
    float result = FMA(power, 0.693147180559945309f, top / bottom);
    result = x == 0.0f ? -INF : result;
    result = x < 0.0f ? NOT_A_NUMBER : result;
    result = x == INF ? x : result;
    return x != x ? x : result;
}

/* exp(x) - 1 from (2 ** k - 1) + 2 ** k * (exp(rest) - 1). */
static inline float expm1_f(float x) {
    float within = x > 88.72283935546875f ? 88.72283935546875f : x;
    within = within < -18.0f ? -18.0f : within;
    float power = nearest_integer(within * 1.442695040888963407f);
    float rest = FMA(power, -6.93145752e-1f, within);
    rest = FMA(power, -1.42860677e-6f, rest);
    float series = FMA(1.9841270e-4f, rest, 1.3888889e-3f);
    series = FMA(series, rest, 8.3333333e-3f);
    series = FMA(series, rest, 4.1666667e-2f);
    series = FMA(series, rest, 1.6666667e-1f);
    series = FMA(series, rest, 0.5f);
    float small = FMA(series * rest, rest, rest);
    /* Half of the power at first: 2 ** 128 is no float. */
    float factor = of_bits(((int32_t)power - 1 + 127) << 23);
    float result = FMA(small, factor, factor - 0.5f) * 2.0f;
    result = power == 0.0f ? small : result;
    result = x > 88.72283935546875f ? INF : result;
    result = x == 0.0f ? x : result;
    return x != x ? x : result;
}

/* log(1 + x): what the sum has lost is put back in the first order. */
static inline float log1p_f(float x) {
    float sum = 1.0f + x;
    float lost = x - (sum - 1.0f);
    float result = log_f(sum) + lost / sum;
    float near = x * (1.0f + x * (-0.5f + x * 0.333333333f));
    result = (x > -1e-3f) & (x < 1e-3f) ? near : result;
    result = x == INF ? x : result;
    result = x == 0.0f ? x : result;
    result = x == -1.0f ? -INF : result;
    return result;
}

/* Near 0 an odd polynomial, else by the exponential. */
static inline float tanh_f(float x) {
    float size = __builtin_fabsf(x);
    float limited = size > 10.0f ? 10.0f : size;
    float twice = expm1_f(2.0f * limited);
    float result = twice / (twice + 2.0f);
    result = __builtin_copysignf(result, x);
    return x != x ? x : result;
}

/* Exact, as are the three that follow: see vmflow/ops/normal_kernels.py, where the coefficients are explained. */
static inline float minus_eighth_power(float x) {
    x = x * x;
    x = x * x;
    x = x * x;
    return 1.0f / x;
}

static inline float erf_f(float x) {
    const float border = 1.0940218f;
    float size = __builtin_fabsf(x);
    float near = size < border ? size : border;
    near = size != size ? size : near;
    float beyond = size - near;
    float power = 0.000607183902f;
    power = power * beyond + -0.000130182932f;
    power = power * beyond + 0.00564338034f;
    power = power * beyond + 0.0167339444f;
    power = power * beyond + 0.064245142f;
    power = power * beyond + 0.218519896f;
    power = power * beyond + 0.455127895f;
    power = power * beyond + 1.30102396f;
    power = minus_eighth_power(1.30102396f) - minus_eighth_power(power);
    float square = near * near;
    float series = 7.22230907e-05f;
    series = series * square + -0.000781729934f;
    series = series * square + 0.00516630197f;
    series = series * square + -0.0268422663f;
    series = series * square + 0.112833127f;
    series = series * square + -0.376126021f;
    series = series * square + 0.128379166f;
    return __builtin_copysignf((series * near + near) + power, x);
}

/* The -8th root of twice the tail of the normal distribution, of the distance from 0. */
static inline float tail(float size) {
    float power = 6.65116261e-07f;
    power = power * size + -6.69397014e-06f;
    power = power * size + 4.01382604e-05f;
    power = power * size + -8.02558643e-05f;
    power = power * size + 0.000429718901f;
    power = power * size + 0.000651116658f;
    power = power * size + 0.00878046267f;
    power = power * size + 0.0447356589f;
    power = power * size + 0.0997378379f;
    power = power * size + 1.0f;
    return minus_eighth_power(power);
}

static inline float limited_size(float x) {
    float size = __builtin_fabsf(x);
    return size > 1e5f ? 1e5f : size;
}

static inline float gelu_f(float x) {
    float size = limited_size(x);
    float power = tail(size) * size * 0.5f;
    float positive = (x > 0.0f) | (x != x) ? x : 0.0f;
    return positive - power;
}

static inline float gelu_gradient_f(float gradient, float x) {
    float density = exp_f(x * x * -0.5f) * 0.3989422804014327f;
    float size = limited_size(x);
    density = density * size;
    float power = 0.5f - tail(size) * 0.5f + density;
    return (__builtin_copysignf(power, x) + 0.5f) * gradient;
}

static inline float sigmoid_f(float x) {
    return 1.0f / (exp_f(-x) + 1.0f);
}

static inline float silu_f(float x) {
    return x / (exp_f(-x) + 1.0f);
}
