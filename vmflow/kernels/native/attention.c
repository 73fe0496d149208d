/* Attention of float32, and its gradients, head by head; the scores of some rows at a time, which stay in the cache.
 *
 * Everything is made of one kind of product.  Of causal attention what lies behind the last of the rows is left out, as in
 * T. Dao et al., FlashAttention, 2022.
 */

/* All heads have these in common.  The first of each row of an operand lies `..._row` elements behind that of the row
 * before it; results lie close together. */
struct attention {
    int64_t length, others, size, value_size, query_row, key_row, value_row, outer_row, causal, keeps;
    double factor;
    /* Set if there was no memory to work in; results are incomplete then. */
    int64_t failed;
};

/* Elements of the scores that are made at once. */
enum { SCORES = 1 << 15 };

/* NULL, which it says of the problem, if there is no memory. */
static float *room_for(int64_t count, int64_t *problem) {
    float *const found = room_of(count);
    if (found == NULL) __atomic_store_n(&((struct attention *)problem)->failed, 1, __ATOMIC_RELAXED);
    return found;
}

/* A matrix, times a factor, in rows that are padded with zeros. */
static void pack(const float *from, int64_t row, int64_t rows, int64_t columns, float factor, float *to) {
    const int64_t width = padded(columns);
    for (int64_t i = 0; i < rows; i++, from += row, to += width) {
        for (int64_t j = 0; j < columns; j++) to[j] = from[j] * factor;
        for (int64_t j = columns; j < width; j++) to[j] = 0;
    }
}

/* `panel` for some rows, by rows as they lie, or turned: each a function of its own, since the compiler is short of registers
 * where there are several. */
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

/* c = a b, or c += a b, for a of (rows, depth), in rows that lie `apart` from each other, or turned, and padded matrices b of
 * (depth, columns) and c of (rows, columns). */
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

static int64_t rows_at_once(const struct attention *it) {
    int64_t rows = SCORES / padded(it->others) / ROWS * ROWS;
    if (rows < ROWS) rows = ROWS;
    /* Of causal attention more can be left out the fewer rows there are. */
    if (it->causal && rows > 4 * ROWS) rows = 4 * ROWS;
    return rows < it->length ? rows : it->length;
}

/* How many keys a row sees. */
static int64_t seen(const struct attention *it, int64_t row) { return it->causal ? least(row + 1, it->others) : it->others; }

/* From scores to what they weigh, in rows of which each sees some, but for what it is all divided by, and that; and its
 * logarithms. */
static void weigh(const struct attention *it, float *scores, int64_t width, int64_t start, int64_t rows, int64_t keys,
                  float *totals, float *logarithms) {
    for (int64_t r = 0; r < rows; r++, scores += width) {
        const int64_t n = seen(it, start + r);
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

/* Of each head: query, key, value, result, and where the weights go or their logarithms. */
void attention(const int64_t *heads, int64_t count, int64_t *problem) {
    const struct attention *it = (const struct attention *)problem;
    EXPECT(it->length > 0 && it->others > 0 && it->size > 0 && it->value_size > 0);
    EXPECT(it->query_row >= it->size && it->key_row >= it->size && it->value_row >= it->value_size);
    const int64_t rows = rows_at_once(it), width = padded(it->others), value_width = padded(it->value_size);
    float *const room = room_for(it->size * width + it->others * value_width + rows * (width + value_width + 1), problem);
    if (room == NULL) return;
    float *const keys = room;
    float *const values = keys + it->size * width, *const scores = values + it->others * value_width;
    float *const made = scores + rows * width, *const totals = made + rows * value_width;
    for (; count; count--, heads += 5) {
        const float *query = (const float *)heads[0];
        float *result = (float *)heads[3], *kept = (float *)heads[4];
        turn((const float *)heads[1], it->key_row, it->others, it->size, (float)it->factor, width, keys);
        pack((const float *)heads[2], it->value_row, it->others, it->value_size, 1, values);
        for (int64_t start = 0; start < it->length; start += rows) {
            const int64_t some = least(rows, it->length - start), last = seen(it, start + some - 1);
            product(query + start * it->query_row, it->query_row, 0, keys, width, scores, width, some, last, it->size, 0);
            weigh(it, scores, width, start, some, last, totals, it->keeps ? NULL : kept + start);
            product(scores, width, 0, values, value_width, made, value_width, some, it->value_size, last, 0);
            for (int64_t r = 0; r < some; r++) {
                copy_divided(made + r * value_width, totals[r], result + (start + r) * it->value_size, it->value_size);
                if (!it->keeps) continue;
                float *to = kept + (start + r) * it->others;
                copy_divided(scores + r * width, totals[r], to, last);
                memset(to + last, 0, (it->others - last) * sizeof(float));
            }
        }
    }
    done_with(room);
}

/* A padded matrix, times a factor, to where it is wanted. */
static void unpack(const float *from, int64_t rows, int64_t columns, float factor, float *to) {
    const int64_t width = padded(columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) to[i * columns + j] = from[i * width + j] * factor;
}

/* Of each head: query, key, value, the gradient by the result, what was kept, and where the gradients by query, key and
 * value go, or nothing. */
void attention_gradient(const int64_t *heads, int64_t count, int64_t *problem) {
    const struct attention *it = (const struct attention *)problem;
    const int64_t rows = rows_at_once(it), width = padded(it->others);
    const int64_t wide = padded(it->size), value_width = padded(it->value_size);
    const float factor = (float)it->factor;
    float *const room = room_for((it->value_size + it->size) * width + it->others * (2 * wide + value_width) +
                                    rows * (2 * width + 2 * wide + value_width), problem);
    if (room == NULL) return;
    float *const turned_values = room;
    float *const turned_keys = turned_values + it->value_size * width, *const keys = turned_keys + it->size * width;
    float *const by_keys = keys + it->others * wide, *const by_values = by_keys + it->others * wide;
    float *const weights = by_values + it->others * value_width, *const slopes = weights + rows * width;
    float *const outer = slopes + rows * width, *const queries = outer + rows * value_width;
    float *const by_queries = queries + rows * wide;
    for (; count; count--, heads += 8) {
        const float *query = (const float *)heads[0], *by_result = (const float *)heads[3];
        const float *kept = (const float *)heads[4];
        float *by_query = (float *)heads[5], *by_key = (float *)heads[6], *by_value = (float *)heads[7];
        turn((const float *)heads[2], it->value_row, it->others, it->value_size, 1, width, turned_values);
        if (by_query) pack((const float *)heads[1], it->key_row, it->others, it->size, 1, keys);
        if (!it->keeps) turn((const float *)heads[1], it->key_row, it->others, it->size, factor, width, turned_keys);
        memset(by_keys, 0, it->others * (wide + value_width) * sizeof(float));
        for (int64_t start = 0; start < it->length; start += rows) {
            const int64_t some = least(rows, it->length - start), last = seen(it, start + some - 1);
            const float *from = query + start * it->query_row, *used = weights;
            int64_t used_row = width;
            if (it->keeps) {
                used = kept + start * it->others;
                used_row = it->others;
            } else {
                product(from, it->query_row, 0, turned_keys, width, weights, width, some, last, it->size, 0);
                for (int64_t r = 0; r < some; r++) {
                    const int64_t n = seen(it, start + r);
                    exponentials(weights + r * width, kept[start + r], weights + r * width, n);
                    for (int64_t i = n; i < last; i++) weights[r * width + i] = 0;
                }
            }
            pack(by_result + start * it->outer_row, it->outer_row, some, it->value_size, 1, outer);
            if (by_value)
                product(used, used_row, 1, outer, value_width, by_values, value_width, last, it->value_size, some, 1);
            product(outer, value_width, 0, turned_values, width, slopes, width, some, last, it->value_size, 0);
            for (int64_t r = 0; r < some; r++) {
                const int64_t n = seen(it, start + r);
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
                product(slopes, width, 0, keys, wide, by_queries, wide, some, it->size, last, 0);
                unpack(by_queries, some, it->size, factor, by_query + start * it->size);
            }
            if (by_key) {
                pack(from, it->query_row, some, it->size, 1, queries);
                product(slopes, width, 1, queries, wide, by_keys, wide, last, it->size, some, 1);
            }
        }
        if (by_key) unpack(by_keys, it->others, it->size, factor, by_key);
        if (by_value) unpack(by_values, it->others, it->value_size, 1, by_value);
    }
    done_with(room);
}
