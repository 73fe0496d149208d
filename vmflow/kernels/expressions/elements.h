/* Functions of one element, without branches, calls, tables, and avoidable divisions.  They give the same bits in C and in
 * CUDA C++, if the processor has FMA.
 *
 * Functions marked as exact agree with numpy to the bit; results of the others are within 3 units in the last place of the true
 * ones (exp and log within 1, with FMA).  The including language defines
 *
 *     INLINED           begins a function that is always inlined
 *     FMA(a, b, c)      a * b + c, rounded once where the processor can
 *     INF               infinity, as a float
 *     of_bits, bits_of  between a float and the int32_t with the same bits */

/* A polynomial times a power of two, in two steps, so that even a denormal result is rounded once.
 *
 * Beyond the limits the steps end at 0 or infinity by themselves.  Bits are limited instead of numbers, which compilers turn into
 * two comparisons and choices each, and more where two limits follow each other. */
INLINED float exp_f(float x) {
    const float shift = 12582912.0f;
    uint32_t bits = (uint32_t)bits_of(x);
    const uint32_t least = (uint32_t)bits_of(-105.0f);
    bits = bits < least ? bits : least;
    const int32_t most = bits_of(89.0f);
    int32_t limited = (int32_t)bits < most ? (int32_t)bits : most;
    float within = of_bits(limited);
    float shifted = FMA(within, 1.442695040888963407f, shift);
    float power = shifted - shift;
    float rest = FMA(power, -6.93145752e-1f, within);
    rest = FMA(power, -1.42860677e-6f, rest);
    float series = FMA(1.38145400e-3f, rest, 8.36874511e-3f);
    series = FMA(series, rest, 4.16683908e-2f);
    series = FMA(series, rest, 1.66665204e-1f);
    series = FMA(series, rest, 4.99999934e-1f);
    series = FMA(series, rest, 1.0f);
    series = FMA(series, rest, 1.0f);
    int32_t whole = bits_of(shifted) - (bits_of(shift) - 254);
    int32_t half = whole >> 1;
    float result = series * of_bits(half << 23) * of_bits((whole - half) << 23);
    return x == x ? result : x;
}

/* From x = fraction * 2 ** power, with a fraction about 1, whose logarithm is a polynomial. */
INLINED float log_f(float x) {
    const int32_t least = 0x3f3504f3; /* sqrt(1 / 2) */
    int32_t tiny = x < 1.17549435e-38f;
    int32_t above = bits_of(tiny ? x * 33554432.0f : x) - least;
    float power = (float)((above >> 23) - (tiny ? 25 : 0));
    float rest = of_bits((above & 0x7fffff) + least) - 1.0f;
    float series = FMA(-7.63449824e-2f, rest, 1.27615777e-1f);
    series = FMA(series, rest, -1.31601832e-1f);
    series = FMA(series, rest, 1.42017579e-1f);
    series = FMA(series, rest, -1.66233574e-1f);
    series = FMA(series, rest, 2.00012269e-1f);
    series = FMA(series, rest, -2.50008210e-1f);
    series = FMA(series, rest, 3.33333317e-1f);
    series = FMA(series, rest, -0.5f);
    series = FMA(power, 1.42860677e-6f, series * (rest * rest));
    float result = FMA(power, 6.93145752e-1f, rest + series);
    result = x < INF ? result : x;
    /* A negative x sets all bits, which makes the result nan. */
    result = of_bits(bits_of(result) | bits_of(x) >> 31);
    return x == 0.0f ? -INF : result;
}

/* (exp(x) - 1) / 2 from (2 ** k - 1) + 2 ** k * (exp(rest) - 1), for x between -18 and 89.
 *
 * Half of it, since 2 ** 128 is no float. */
INLINED float half_of_expm1(float x) {
    const float shift = 12582912.0f;
    float shifted = FMA(x, 1.442695040888963407f, shift);
    float power = shifted - shift;
    float rest = FMA(power, -6.93145752e-1f, x);
    rest = FMA(power, -1.42860677e-6f, rest);
    float series = FMA(1.38706561e-3f, rest, 8.36626161e-3f);
    series = FMA(series, rest, 4.16674353e-2f);
    series = FMA(series, rest, 1.66665465e-1f);
    series = FMA(series, rest, 4.99999970e-1f);
    float small = FMA(series * rest, rest, rest);
    float half = of_bits((int32_t)((uint32_t)bits_of(shifted) << 23) + (126 << 23));
    return FMA(small, half, half - 0.5f);
}

/* Bits are limited, as in `exp_f`.  Numbers close to 0, nan and -0 are their own results. */
INLINED float expm1_f(float x) {
    uint32_t bits = (uint32_t)bits_of(x);
    const uint32_t least = (uint32_t)bits_of(-18.0f);
    bits = bits < least ? bits : least;
    const int32_t most = bits_of(89.0f);
    int32_t limited = (int32_t)bits < most ? (int32_t)bits : most;
    float result = half_of_expm1(of_bits(limited)) * 2.0f;
    return fabsf(x) > 1e-8f ? result : x;
}

/* log(1 + x): the rounding error of the sum is corrected in the first order. */
INLINED float log1p_f(float x) {
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

/* half / (half + 1), where half is (exp(2 * x) - 1) / 2, for the size of x; the sign is restored. */
INLINED float tanh_f(float x) {
    int32_t size = bits_of(x) & 0x7fffffff;
    const int32_t most = bits_of(10.0f);
    float half = half_of_expm1(2.0f * of_bits(size < most ? size : most));
    float result = half / (half + 1.0f);
    result = of_bits(bits_of(result) | (bits_of(x) & (int32_t)0x80000000));
    return x == x ? result : x;
}

/* Exact, like the functions up to `gelu_f`: those of vmflow/kernels/numpy/activation.py. */
INLINED float minus_eighth_power(float x) {
    x = x * x;
    x = x * x;
    x = x * x;
    return 1.0f / x;
}

INLINED float erf_f(float x) {
    const float border = 1.0940218f;
    float size = fabsf(x);
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
    return copysignf((series * near + near) + power, x);
}

/* The -8th root of twice the tail of the normal distribution, for a distance from 0. */
INLINED float tail(float size) {
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

INLINED float limited_size(float x) {
    float size = fabsf(x);
    return size > 1e5f ? 1e5f : size;
}

INLINED float gelu_f(float x) {
    float size = limited_size(x);
    float power = tail(size) * size * 0.5f;
    float positive = (x > 0.0f) | (x != x) ? x : 0.0f;
    return positive - power;
}

INLINED float gelu_gradient_f(float gradient, float x) {
    float density = exp_f(x * x * -0.5f) * 0.3989422804014327f;
    float size = limited_size(x);
    density = density * size;
    float power = 0.5f - tail(size) * 0.5f + density;
    return (copysignf(power, x) + 0.5f) * gradient;
}

INLINED float sigmoid_f(float x) {
    return 1.0f / (exp_f(-x) + 1.0f);
}

INLINED float silu_f(float x) {
    return x / (exp_f(-x) + 1.0f);
}
