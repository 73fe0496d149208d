/* Attention of float32, and its gradients, head by head; the scores of some rows at a time stay in the cache.
 *
 * All products are of one kind.  Causal attention skips the keys behind the last of the rows, as in T. Dao et al.,
 * FlashAttention, 2022.
 */

/* Shared by all heads.  Each row of an operand begins `..._row` elements behind the row before it; results are contiguous. */
struct attention {
    int64_t length, others, size, value_size, query_row, key_row, value_row, outer_row, causal, keeps;
    double factor;
    /* Set if there was no scratch memory; results are incomplete then. */
    int64_t failed;
};

/* Elements of the scores that are computed together. */
enum { SCORES = 1 << 15 };

/* Scratch memory; NULL if there is none, which sets the problem's `failed`. */
static float *scratch_or_fail(int64_t count, int64_t *problem) {
    float *const found = get_scratch(count);
    if (found == NULL) __atomic_store_n(&((struct attention *)problem)->failed, 1, __ATOMIC_RELAXED);
    return found;
}

/* Copy a matrix, times a factor, into rows that are padded with zeros. */
static void pack(const float *from, int64_t row, int64_t rows, int64_t columns, float factor, float *to) {
    const int64_t width = padded(columns);
    for (int64_t i = 0; i < rows; i++, from += row, to += width) {
        for (int64_t j = 0; j < columns; j++) to[j] = from[j] * factor;
        for (int64_t j = columns; j < width; j++) to[j] = 0;
    }
}

/* `panel` for some rows, as they lie or transposed.  Each is a function of its own, since the compiler runs short of registers
 * in functions with several. */
#define PANEL_OF(name, count, row, step)                                                                                 \
    static __attribute__((noinline)) void name(const float *a, int64_t apart, const float *b, int64_t b_row, float *c,    \
                                               int64_t c_row, int64_t depth, int adds) {                                  \
        panel(count, 2, a, row, step, b, b_row, c, c_row, depth, adds, NULL, 0);                                          \
    }
PANEL_OF(many_lines, ROWS, apart, 1)
PANEL_OF(four_lines, 4, apart, 1)
PANEL_OF(one_lines, 1, apart, 1)
PANEL_OF(many_turned, ROWS, 1, apart)
PANEL_OF(four_turned, 4, 1, apart)
PANEL_OF(one_turned, 1, 1, apart)

/* c = a b, or c += a b.  a is (rows, depth), in rows that lie `apart` from each other, or transposed; b, (depth, columns), and c,
 * (rows, columns), are padded matrices. */
static void product(const float *a, int64_t apart, int turned, const float *b, int64_t b_row, float *c, int64_t c_row,
                    int64_t rows, int64_t columns, int64_t depth, int adds) {
    const int64_t next = turned ? 1 : apart;
    for (int64_t j = 0; j < columns; j += PANEL) {
        int64_t i = 0;
#define CALL(count) \
    (turned ? count##_turned : count##_lines)(a + i * next, apart, b + j, b_row, c + i * c_row + j, c_row, depth, adds)
        for (; i + ROWS <= rows; i += ROWS) CALL(many);
        for (; i + 4 <= rows; i += 4) CALL(four);
        for (; i < rows; i++) CALL(one);
#undef CALL
    }
}

static int64_t rows_at_once(const struct attention *op) {
    int64_t rows = SCORES / padded(op->others) / ROWS * ROWS;
    if (rows < ROWS) rows = ROWS;
    /* Causal attention can skip more keys with fewer rows. */
    if (op->causal && rows > 4 * ROWS) rows = 4 * ROWS;
    return rows < op->length ? rows : op->length;
}

/* The number of keys that a row attends to. */
static int64_t attended(const struct attention *op, int64_t row) { return op->causal ? least(row + 1, op->others) : op->others; }

/* Turn scores into weights, before their division by the row's total, and into totals and logarithms; each row attends to its
 * first keys only. */
static void weigh(const struct attention *op, float *scores, int64_t width, int64_t start, int64_t rows, int64_t keys,
                  float *totals, float *logarithms) {
    for (int64_t r = 0; r < rows; r++, scores += width) {
        const int64_t n = attended(op, start + r);
        const float most = largest(scores, n);
        exponentials(scores, most, scores, n);
        for (int64_t i = n; i < keys; i++) scores[i] = 0;
        totals[r] = long_sum(scores, n);
        if (logarithms) logarithms[r] = most + log_f(totals[r]);
    }
}

static void copy_divided(const float *from, float total, float *to, int64_t count) {
    const float factor = 1 / total;
    LANES
    for (int64_t i = 0; i < count; i++) to[i] = from[i] * factor;
}

/* Each head has five words: the addresses of query, key, value, result, and of memory for the weights, if `keeps`, or for the
 * logarithms of their divisors. */
void attention(const int64_t *heads, int64_t count, int64_t *problem) {
    const struct attention *op = (const struct attention *)problem;
    EXPECT(op->length > 0 && op->others > 0 && op->size > 0 && op->value_size > 0);
    EXPECT(op->query_row > 0 && op->key_row > 0 && op->value_row > 0); /* rows may overlap */
    const int64_t rows = rows_at_once(op), width = padded(op->others), value_width = padded(op->value_size);
    const int64_t needed = op->size * width + op->others * value_width + rows * (width + value_width + 1);
    float *const scratch = scratch_or_fail(needed, problem);
    if (scratch == NULL) return;
    float *const keys = scratch;
    float *const values = keys + op->size * width, *const scores = values + op->others * value_width;
    float *const made = scores + rows * width, *const totals = made + rows * value_width;
    for (; count; count--, heads += 5) {
        const float *query = (const float *)heads[0];
        float *result = (float *)heads[3], *kept = (float *)heads[4];
        turn((const float *)heads[1], op->key_row, op->others, op->size, (float)op->factor, width, keys);
        pack((const float *)heads[2], op->value_row, op->others, op->value_size, 1, values);
        for (int64_t start = 0; start < op->length; start += rows) {
            const int64_t some = least(rows, op->length - start), last = attended(op, start + some - 1);
            product(query + start * op->query_row, op->query_row, 0, keys, width, scores, width, some, last, op->size, 0);
            weigh(op, scores, width, start, some, last, totals, op->keeps ? NULL : kept + start);
            product(scores, width, 0, values, value_width, made, value_width, some, op->value_size, last, 0);
            for (int64_t r = 0; r < some; r++) {
                copy_divided(made + r * value_width, totals[r], result + (start + r) * op->value_size, op->value_size);
                if (!op->keeps) continue;
                float *to = kept + (start + r) * op->others;
                copy_divided(scores + r * width, totals[r], to, last);
                memset(to + last, 0, (op->others - last) * sizeof(float));
            }
        }
    }
    free_scratch(scratch);
}

/* Copy a padded matrix, times a factor, into a contiguous one. */
static void unpack(const float *from, int64_t rows, int64_t columns, float factor, float *to) {
    const int64_t width = padded(columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[i * columns + j] = from[i * width + j] * factor;
}

/* Each head has eight words: the addresses of query, key, value, the gradient by the result, the kept weights or logarithms,
 * and of the gradients by query, key and value, or 0 for an unwanted one. */
void attention_gradient(const int64_t *heads, int64_t count, int64_t *problem) {
    const struct attention *op = (const struct attention *)problem;
    const int64_t rows = rows_at_once(op), width = padded(op->others);
    const int64_t wide = padded(op->size), value_width = padded(op->value_size);
    const float factor = (float)op->factor;
    const int64_t needed = (op->value_size + op->size) * width + op->others * (2 * wide + value_width) +
                           rows * (2 * width + 2 * wide + value_width);
    float *const scratch = scratch_or_fail(needed, problem);
    if (scratch == NULL) return;
    float *const turned_values = scratch;
    float *const turned_keys = turned_values + op->value_size * width, *const keys = turned_keys + op->size * width;
    float *const by_keys = keys + op->others * wide, *const by_values = by_keys + op->others * wide;
    float *const weights = by_values + op->others * value_width, *const slopes = weights + rows * width;
    float *const outer = slopes + rows * width, *const queries = outer + rows * value_width;
    float *const by_queries = queries + rows * wide;
    for (; count; count--, heads += 8) {
        const float *query = (const float *)heads[0], *by_result = (const float *)heads[3];
        const float *kept = (const float *)heads[4];
        float *by_query = (float *)heads[5], *by_key = (float *)heads[6], *by_value = (float *)heads[7];
        turn((const float *)heads[2], op->value_row, op->others, op->value_size, 1, width, turned_values);
        if (by_query) pack((const float *)heads[1], op->key_row, op->others, op->size, 1, keys);
        if (!op->keeps) turn((const float *)heads[1], op->key_row, op->others, op->size, factor, width, turned_keys);
        memset(by_keys, 0, op->others * (wide + value_width) * sizeof(float));
        for (int64_t start = 0; start < op->length; start += rows) {
            const int64_t some = least(rows, op->length - start), last = attended(op, start + some - 1);
            const float *from = query + start * op->query_row, *used = weights;
            int64_t used_row = width;
            if (op->keeps) {
                used = kept + start * op->others;
                used_row = op->others;
            } else {
                product(from, op->query_row, 0, turned_keys, width, weights, width, some, last, op->size, 0);
                for (int64_t r = 0; r < some; r++) {
                    const int64_t n = attended(op, start + r);
                    exponentials(weights + r * width, kept[start + r], weights + r * width, n);
                    for (int64_t i = n; i < last; i++) weights[r * width + i] = 0;
                }
            }
            pack(by_result + start * op->outer_row, op->outer_row, some, op->value_size, 1, outer);
            if (by_value)
                product(used, used_row, 1, outer, value_width, by_values, value_width, last, op->value_size, some, 1);
            product(outer, value_width, 0, turned_values, width, slopes, width, some, last, op->value_size, 0);
            for (int64_t r = 0; r < some; r++) {
                const int64_t n = attended(op, start + r);
                float *slope = slopes + r * width;
                const float *weight = used + r * used_row;
                float sum = 0;
                lanes sums = {0};
                int64_t i = 0;
                for (; i + LANES_OF <= n; i += LANES_OF) {
                    lanes one, other;
                    memcpy(&one, slope + i, sizeof one);
                    memcpy(&other, weight + i, sizeof other);
                    sums = TIMES_PLUS(one, other, sums);
                }
                for (int lane = 0; lane < LANES_OF; lane++) sum += sums[lane];
                for (; i < n; i++) sum += slope[i] * weight[i];
                LANES
                for (int64_t k = 0; k < n; k++) slope[k] = (slope[k] - sum) * weight[k];
                for (int64_t k = n; k < last; k++) slope[k] = 0;
            }
            if (by_query) {
                product(slopes, width, 0, keys, wide, by_queries, wide, some, op->size, last, 0);
                unpack(by_queries, some, op->size, factor, by_query + start * op->size);
            }
            if (by_key) {
                pack(from, op->query_row, some, op->size, 1, queries);
                product(slopes, width, 1, queries, wide, by_keys, wide, last, op->size, some, 1);
            }
        }
        if (by_key) unpack(by_keys, op->others, op->size, factor, by_key);
        if (by_value) unpack(by_values, op->others, op->value_size, 1, by_value);
    }
    free_scratch(scratch);
}
