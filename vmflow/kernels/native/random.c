/* Random numbers by index: words of Philox 4x32-10, and numbers computed from them element by element.
 *
 * J. Salmon, M. Moraes, R. Dror and D. Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011.
 *
 * The numbers agree to the bit with vmflow/kernels/numpy/philox.py, box_muller.py and random.py, where the polynomials and
 * their order are explained.  Each function computes the elements from `first` on, so that several threads can share them.
 */

enum { BLOCKS = 16, ROUNDS = 10, WIDE = 8 };

/* Words as 64-bit integers, which hold their products. */
typedef uint64_t wide __attribute__((vector_size(WIDE * 8)));

/* The first, second, third and fourth words of some blocks. */
struct words {
    uint32_t of[4][BLOCKS];
};

ALWAYS encrypt(struct words *words, uint64_t seed, uint64_t position, uint64_t lane) {
    enum { VECTORS = BLOCKS / WIDE };
    const wide mask = (wide){0} + 0xFFFFFFFFu;
    wide a[VECTORS], b[VECTORS], c[VECTORS], d[VECTORS];
    for (int v = 0; v < VECTORS; v++) {
        const wide counters = (wide){0, 1, 2, 3, 4, 5, 6, 7} + (position + (uint64_t)(WIDE * v));
        a[v] = counters & mask, b[v] = counters >> 32;
        c[v] = (wide){0} + (lane & 0xFFFFFFFFu), d[v] = (wide){0} + (lane >> 32);
    }
    uint32_t low = (uint32_t)seed, high = (uint32_t)(seed >> 32);
    for (int round = 0; round < ROUNDS; round++, low += 0x9E3779B9u, high += 0xBB67AE85u)
        for (int v = 0; v < VECTORS; v++) {
            const wide one = a[v] * 0xD2511F53u, other = c[v] * 0xCD9E8D57u;
            a[v] = (other >> 32) ^ b[v] ^ low;
            c[v] = (one >> 32) ^ d[v] ^ high;
            b[v] = other & mask, d[v] = one & mask;
        }
    for (int v = 0; v < VECTORS; v++)
        for (int j = 0; j < WIDE; j++) {
            words->of[0][WIDE * v + j] = (uint32_t)a[v][j], words->of[1][WIDE * v + j] = (uint32_t)b[v][j];
            words->of[2][WIDE * v + j] = (uint32_t)c[v][j], words->of[3][WIDE * v + j] = (uint32_t)d[v][j];
        }
}

/* Numbers from words */

static inline int64_t wide_bits_of(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double of_wide_bits(int64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float logarithm(float x) {
    const int32_t bits = bits_of(x) - 0x3F3504F3;
    const float exponent = (float)(bits >> 23), f = of_bits((bits & 0x7FFFFF) + 0x3F3504F3) - 1.0f;
    const float square = f * f;
    float power = f * 7.0376836292e-2f + -1.1514610310e-1f;
    power = power * f + 1.1676998740e-1f;
    power = power * f + -1.2420140846e-1f;
    power = power * f + 1.4249322787e-1f;
    power = power * f + -1.6668057665e-1f;
    power = power * f + 2.0000714765e-1f;
    power = power * f + -2.4999993993e-1f;
    power = power * f + 3.3333331174e-1f;
    power = power * f * square;
    power = power + exponent * -2.12194440e-4f;
    power = power - square * 0.5f;
    return (f + power) + exponent * 0.693359375f;
}

static inline double wide_logarithm(double x) {
    const int64_t bits = wide_bits_of(x) - 0x3FE6A09E667F3BCD;
    const double exponent = (double)(int32_t)(bits >> 52);
    const double f = of_wide_bits((bits & 0xFFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD) - 1.0;
    const double ratio = f / (f + 2.0), square = ratio * ratio, half = f * f * 0.5;
    double rest = square * 1.479819860511658591e-01 + 1.531383769920937332e-01;
    rest = rest * square + 1.818357216161805012e-01;
    rest = rest * square + 2.222219843214978396e-01;
    rest = rest * square + 2.857142874366239149e-01;
    rest = rest * square + 3.999999999940941908e-01;
    rest = rest * square + 6.666666666666735130e-01;
    rest = rest * square;
    const double small = ratio * (half + rest) + exponent * 1.90821492927058770002e-10;
    return exponent * 6.93147180369123816490e-01 - ((half - small) - f);
}

/* Two normal numbers from two words. */
static inline void normal_pair(uint32_t one, uint32_t other, float *x, float *y) {
    const float radius = __builtin_sqrtf(-2.0f * logarithm((float)one * 0x1p-32f + 0x1p-33f));
    const uint32_t turned = other + (1u << 29), quarters = turned >> 30;
    const float angle = (float)((int32_t)(turned & ((1u << 30) - 1)) - (1 << 29)) * 1.4629180792671596e-09f;
    const float square = angle * angle;
    float sine = square * -1.9515295891e-4f + 8.3321608736e-3f;
    sine = sine * square + -1.6666654611e-1f;
    sine = sine * square * angle + angle;
    float cosine = square * 2.443315711809948e-5f + -1.388731625493765e-3f;
    cosine = cosine * square + 4.166664568298827e-2f;
    cosine = cosine * (square * square) - square * 0.5f + 1.0f;
    const float across = quarters & 1 ? sine : cosine, up = quarters & 1 ? cosine : sine;
    *x = radius * of_bits(bits_of(across) ^ (int32_t)(((quarters + 1) & 2) << 30));
    *y = radius * of_bits(bits_of(up) ^ (int32_t)((quarters & 2) << 30));
}

static inline double uniform_wide(uint32_t low, uint32_t high) {
    return (double)high * 0x1p-32 + (double)(low >> 11) * 0x1p-53;
}

/* Two normal numbers from the words of a block. */
static inline void wide_normal_pair(uint32_t a, uint32_t b, uint32_t c, uint32_t d, double *x, double *y) {
    const double radius = __builtin_sqrt(-2.0 * wide_logarithm(uniform_wide(a, b) + 0x1p-54));
    const uint64_t turned = (((uint64_t)d << 32) | c) + (1ull << 61), quarters = turned >> 62;
    const double angle = (double)((int64_t)(turned & ((1ull << 62) - 1)) - (1ll << 61)) * 3.4061215800865545e-19;
    const double square = angle * angle;
    double sine = square * 1.58969099521155010221e-10 + -2.50507602534068634195e-08;
    sine = sine * square + 2.75573137070700676789e-06;
    sine = sine * square + -1.98412698298579493134e-04;
    sine = sine * square + 8.33333333332248946124e-03;
    sine = sine * square + -1.66666666666666324348e-01;
    sine = sine * square * angle + angle;
    double cosine = square * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
    cosine = cosine * square + -2.75573143513906633035e-07;
    cosine = cosine * square + 2.48015872894767294178e-05;
    cosine = cosine * square + -1.38888888888741095749e-03;
    cosine = cosine * square + 4.16666666666666019037e-02;
    cosine = cosine * (square * square) - square * 0.5 + 1.0;
    const double across = quarters & 1 ? sine : cosine, up = quarters & 1 ? cosine : sine;
    *x = radius * of_wide_bits(wide_bits_of(across) ^ (int64_t)(((quarters + 1) & 2) << 62));
    *y = radius * of_wide_bits(wide_bits_of(up) ^ (int64_t)((quarters & 2) << 62));
}

/* Elements of some blocks, block by block */

ALWAYS words_of(const struct words *words, uint32_t *to) {
    for (int j = 0; j < BLOCKS; j++)
        for (int k = 0; k < 4; k++) to[4 * j + k] = words->of[k][j];
}

ALWAYS uniform_floats_of(const struct words *words, float *to) {
    for (int j = 0; j < BLOCKS; j++)
        for (int k = 0; k < 4; k++) to[4 * j + k] = (float)(int32_t)(words->of[k][j] >> 8) * 0x1p-24f;
}

ALWAYS uniform_doubles_of(const struct words *words, double *to) {
    for (int j = 0; j < BLOCKS; j++)
        for (int k = 0; k < 2; k++) to[2 * j + k] = uniform_wide(words->of[2 * k][j], words->of[2 * k + 1][j]);
}

ALWAYS normal_floats_of(const struct words *words, float *to) {
    float found[4][BLOCKS];
    for (int k = 0; k < 4; k += 2)
        for (int j = 0; j < BLOCKS; j++) normal_pair(words->of[k][j], words->of[k + 1][j], &found[k][j], &found[k + 1][j]);
    for (int j = 0; j < BLOCKS; j++)
        for (int k = 0; k < 4; k++) to[4 * j + k] = found[k][j];
}

ALWAYS normal_doubles_of(const struct words *words, double *to) {
    double found[2][BLOCKS];
    for (int j = 0; j < BLOCKS; j++)
        wide_normal_pair(words->of[0][j], words->of[1][j], words->of[2][j], words->of[3][j], &found[0][j], &found[1][j]);
    for (int j = 0; j < BLOCKS; j++)
        for (int k = 0; k < 2; k++) to[2 * j + k] = found[k][j];
}

/* The functions: `count` elements from number `first` on */

#define BY_BLOCKS(name, kind, each)                                                                                            \
    void random_##name(kind *to, int64_t first, int64_t count, uint64_t seed, uint64_t position, uint64_t lane) {              \
        EXPECT(IS_AT(to) && first >= 0 && count >= 0);                                                                         \
        struct words words;                                                                                                    \
        kind found[BLOCKS * each];                                                                                             \
        int64_t skipped = first % each;                                                                                        \
        for (position += (uint64_t)(first / each); count > 0; position += BLOCKS, skipped = 0) {                               \
            const int64_t left = BLOCKS * each - skipped, some = count < left ? count : left;                                  \
            encrypt(&words, seed, position, lane);                                                                             \
            name##_of(&words, found);                                                                                          \
            memcpy(to, found + skipped, (size_t)some * sizeof *to);                                                            \
            to += some, count -= some;                                                                                         \
        }                                                                                                                      \
    }
BY_BLOCKS(words, uint32_t, 4)
BY_BLOCKS(uniform_floats, float, 4)
BY_BLOCKS(uniform_doubles, double, 2)
BY_BLOCKS(normal_floats, float, 4)
BY_BLOCKS(normal_doubles, double, 2)

/* A mask for dropout from 16 bits for each element.  An element is kept if its bits are more than `limit`; if they are equal to
 * it, the element's word in lane 1 decides: the element is kept if that word is at least the fraction `rest` of all words. */
void random_kept(uint8_t *to, int64_t first, int64_t count, uint64_t seed, uint64_t position, int64_t limit, double rest) {
    enum { EACH = 8 };
    EXPECT(IS_AT(to) && first >= 0 && count >= 0);
    struct words words;
    const uint32_t most = (uint32_t)limit;
    for (int64_t block = first / EACH, skipped = first % EACH; count > 0; block += BLOCKS, skipped = 0) {
        uint8_t kept[BLOCKS * EACH];
        uint32_t undecided = 0;
        encrypt(&words, seed, position + (uint64_t)block, 0);
        for (int j = 0; j < BLOCKS; j++)
            for (int k = 0; k < 4; k++) {
                const uint32_t low = words.of[k][j] & 0xFFFF, high = words.of[k][j] >> 16;
                kept[EACH * j + 2 * k] = low > most, kept[EACH * j + 2 * k + 1] = high > most;
                undecided |= (low == most) | (high == most);
            }
        for (int i = 0; undecided && i < BLOCKS * EACH; i++) {
            const int64_t element = block * EACH + i;
            if ((words.of[i % EACH / 2][i / EACH] >> (i % 2 * 16) & 0xFFFF) != most) continue;
            struct words further;
            encrypt(&further, seed, position + (uint64_t)(element / 4), 1);
            kept[i] = (double)further.of[element % 4][0] * 0x1p-32 >= rest;
        }
        const int64_t left = BLOCKS * EACH - skipped, some = count < left ? count : left;
        memcpy(to, kept + skipped, (size_t)some);
        to += some, count -= some;
    }
}

/* Integers from `low` up to, without, `low + below`, where a `below` of 0 stands for 2**64; see `scaled` in random.py. */
void random_integers(int64_t *to, int64_t first, int64_t count, uint64_t seed, uint64_t position, uint64_t below,
                     int64_t low) {
    enum { EACH = 2 };
    EXPECT(IS_AT(to) && first >= 0 && count >= 0);
    struct words words;
    int64_t skipped = first % EACH;
    for (position += (uint64_t)(first / EACH); count > 0; position += BLOCKS, skipped = 0) {
        uint64_t found[BLOCKS * EACH];
        encrypt(&words, seed, position, 0);
        for (int j = 0; j < BLOCKS; j++)
            for (int k = 0; k < EACH; k++) {
                const uint64_t word = words.of[2 * k][j] | (uint64_t)words.of[2 * k + 1][j] << 32;
                found[EACH * j + k] = (below ? (uint64_t)((unsigned __int128)word * below >> 64) : word) + (uint64_t)low;
            }
        const int64_t left = BLOCKS * EACH - skipped, some = count < left ? count : left;
        memcpy(to, found + skipped, (size_t)some * sizeof *to);
        to += some, count -= some;
    }
}

/* Sort keys by their bits from `lowest` on; equal keys keep their order, and `scratch` has as many elements.  An LSD radix sort:
 * digit by digit, the least significant one first. */
void sort_keys(uint64_t *keys, uint64_t *scratch, int64_t count, int64_t lowest) {
    enum { DIGIT = 11, DIGITS = 1 << DIGIT };
    EXPECT(IS_AT(keys) && IS_AT(scratch) && count >= 0 && lowest >= 0 && lowest < 64);
    uint64_t *from = keys, *to = scratch;
    for (int64_t bit = lowest; bit < 64; bit += DIGIT) {
        int64_t places[DIGITS] = {0}, next = 0;
        for (int64_t i = 0; i < count; i++) places[from[i] >> bit & (DIGITS - 1)]++;
        for (int64_t digit = 0; digit < DIGITS; digit++) {
            const int64_t found = places[digit];
            places[digit] = next, next += found;
        }
        for (int64_t i = 0; i < count; i++) to[places[from[i] >> bit & (DIGITS - 1)]++] = from[i];
        uint64_t *const other = from;
        from = to, to = other;
    }
    if (from != keys) memcpy(keys, from, (size_t)count * sizeof *keys);
}
