/* Products of two matrices of float32.
 *
 * Each element of a result is added up in one order, for all shapes and any thread: at most `DEPTH` products one after the
 * other, and then these sums.  So a row of the result depends on nothing but its row of the one operand, and on the other
 * operand.
 *
 * Vectors are made of columns, or of rows if that takes fewer copies; then the result's transpose is computed.
 */

/* The sizes of the parts of the operands: a panel of DEPTH lies in the first or second cache, and HEIGHT packed rows of DEPTH
 * in the second; the other operand is packed for WIDTH columns, if more than HEIGHT rows make use of them. */
enum { DEPTH = 800, HEIGHT = 120, WIDTH = 1024 };

/* Panels that are computed together, row by row, have this depth in all: a shallow panel has little to compute, and the
 * processor prefetches the targets if they lie side by side. */
enum { TOGETHER = 2048 };

/* A panel's row is prefetched so many rows ahead where rows are more than NEAR apart, since the first cache does not hold it
 * for long.  Not where rows of the other operand are read side by side: there are more than enough loads already. */
enum { ROWS_AHEAD = 40, NEAR = 128 };

/* Rows are packed from so many columns on.  Rows of adjacent numbers are packed from more columns on, unless they begin a
 * multiple of CROWDED elements apart, which the cache cannot hold together. */
enum { PACK_FROM = 4 * PANEL, PACK_LINES_FROM = 16 * PANEL, CROWDED = 512 };

/* Transposing an element of an operand takes as long as so many products; storing one of a transposed result takes as long as
 * so many transpositions. */
enum { AS_A_TURN = 20, TURNS_A_RESULT = 4 };

/* Element (i, k) is at[i * row + k * step]; `row` or `step` is 1. */
struct matrix {
    const float *at;
    int64_t row, step;
};

/* Rows with gaps between their numbers are packed for so much of the depth at a time.  Their reads, each of a part of a line,
 * then hit the first cache, where numbers that lie a power of two apart evict each other, and the writes fill whole lines. */
enum { RUN = 8 };

/* Pack some rows of a, ROWS by ROWS; `depth` times ROWS numbers lie together. */
static void pack_rows(struct matrix a, int64_t rows, int64_t depth, float *to) {
    if (a.step == 1) {
        for (; rows > 0; rows -= ROWS, a.at += ROWS * a.row, to += depth * ROWS)
            if (rows >= ROWS) turn(a.at, a.row, ROWS, depth, 1, ROWS, to);
            else turn(a.at, a.row, rows, depth, 1, ROWS, to);
        return;
    }
    for (int64_t from = 0; from < depth; from += RUN) {
        const int64_t end = least(from + RUN, depth);
        int64_t i = 0;
        for (; i + ROWS <= rows; i += ROWS)
            for (int64_t k = from; k < end; k++)
                memcpy(to + i * depth + k * ROWS, a.at + k * a.step + i, ROWS * sizeof(float));
        for (int64_t k = from; k < end; k++)
            memcpy(to + i * depth + k * ROWS, a.at + k * a.step + i, (rows - i) * sizeof(float));
    }
}

/* Pack a panel of b that is not full, or whose columns are adjacent numbers. */
static void pack_panel(struct matrix b, int64_t columns, int64_t depth, float *to) {
    if (b.row == 1)
        for (int64_t k = 0; k < depth; k++, to += PANEL) {
            memcpy(to, b.at + k * b.step, columns * sizeof(float));
            memset(to + columns, 0, (PANEL - columns) * sizeof(float));
        }
    else if (columns == PANEL) turn(b.at, b.row, PANEL, depth, 1, PANEL, to);
    else turn(b.at, b.row, columns, depth, 1, PANEL, to);
}

static int64_t rows_at_once(int64_t rows, int64_t columns) {
    if (rows >= ROWS) return ROWS;
    if (rows >= 8 && ROWS > 8 && columns > LANES_OF) return 8;
    return rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
}

/* `panel` for one number of rows and vectors, by rows as they lie, or packed.  Each is a function of its own, since the compiler
 * runs short of registers in functions with several. */
#define PANEL_OF(name, count, vectors, row, step, kept, ahead)                                                           \
    static __attribute__((noinline)) void name(const float *a, int64_t apart, const float *b, int64_t b_row, float *c,    \
                                               int64_t c_row, int64_t depth, int adds, float *keeps) {                    \
        (void)keeps;                                                                                                      \
        panel(count, vectors, a, row, step, b, b_row, c, c_row, depth, adds, kept, ahead);                                \
    }
#define PANELS_OF(count, vectors)                                           \
    PANEL_OF(lines_##count##_##vectors, count, vectors, apart, 1, NULL, 0)  \
    PANEL_OF(packed_##count##_##vectors, count, vectors, 1, apart, NULL, 0)

enum { EIGHT = ROWS > 8 ? 8 : 1 };
PANELS_OF(ROWS, 1)
PANELS_OF(ROWS, 2)
PANELS_OF(EIGHT, 2)
PANELS_OF(4, 1)
PANELS_OF(4, 2)
PANELS_OF(2, 2)
PANELS_OF(1, 1)
PANELS_OF(1, 2)
PANEL_OF(lines_kept, ROWS, 2, apart, 1, keeps, 0)
PANEL_OF(packed_kept, ROWS, 2, 1, apart, keeps, 0)
PANEL_OF(packed_ahead, ROWS, 2, 1, apart, NULL, ROWS_AHEAD)

/* `panel` for a number of rows that `rows_at_once` has returned, and for so many columns. */
INLINE void panel_of(int64_t rows, int64_t columns, struct matrix a, const float *b, int64_t b_row, float *c, int64_t c_row,
                     int64_t depth, int adds, float *kept) {
    const int lines = a.step == 1;
    const int64_t apart = lines ? a.row : a.step;
#define CALL(count, vectors) \
    (lines ? lines_##count##_##vectors : packed_##count##_##vectors)(a.at, apart, b, b_row, c, c_row, depth, adds, NULL)
    if (columns <= LANES_OF) {
        for (; rows >= ROWS; rows -= ROWS, a.at += ROWS * a.row, c += ROWS * c_row) CALL(ROWS, 1);
        for (; rows >= 4; rows -= 4, a.at += 4 * a.row, c += 4 * c_row) CALL(4, 1);
        for (; rows; rows--, a.at += a.row, c += c_row) CALL(1, 1);
    } else if (rows == ROWS && kept) (lines ? lines_kept : packed_kept)(a.at, apart, b, b_row, c, c_row, depth, adds, kept);
    else if (rows == ROWS && !lines && b_row == PANEL && depth > NEAR)
        packed_ahead(a.at, apart, b, b_row, c, c_row, depth, adds, NULL);
    else if (rows == ROWS) CALL(ROWS, 2);
    else if (rows == 8) CALL(EIGHT, 2);
    else if (rows == 4) CALL(4, 2);
    else if (rows == 2) CALL(2, 2);
    else CALL(1, 2);
#undef CALL
}

/* Store a part of a result: rows of a panel become rows, or columns, of the target, which lie `apart`. */
static void deliver(const float *from, int64_t rows, int64_t columns, int turned, float *to, int64_t apart, int adds) {
    float square[PANEL * LANES_OF];
    int64_t from_row = PANEL;
    if (turned) {
        turn(from, PANEL, ROWS, PANEL, 1, LANES_OF, square);
        from = square, from_row = LANES_OF;
        const int64_t count = rows;
        rows = columns, columns = count;
    }
    for (int64_t i = 0; i < rows; i++, from += from_row, to += apart)
        if (!adds) memcpy(to, from, columns * sizeof(float));
        else
            for (int64_t j = 0; j < columns; j++) to[j] += from[j];
}

/* The length of the parts that a depth is cut into, which are about equal. */
static int64_t length_of_parts(int64_t depth) {
    const int64_t parts = (depth + DEPTH - 1) / DEPTH;
    return (depth + parts - 1) / parts;
}

/* The columns of the panels that are computed together. */
static int64_t columns_together(int64_t depth) { return PANEL * (depth < TOGETHER ? TOGETHER / depth : 1); }

/* Scratch memory for the panels that are packed together. */
static int64_t scratch_for_panels(int64_t rows, int64_t columns, int64_t depth) {
    const int64_t deep = length_of_parts(depth), all = padded(least(columns, WIDTH));
    return (rows > HEIGHT ? all : least(all, columns_together(deep))) * deep;
}

/* All scratch memory of `multiply`: the results of a panel, panels, rows, and the vector that is written behind them. */
static int64_t scratch_to_multiply(int64_t rows, int64_t columns, int64_t depth) {
    return LANES_OF * PANEL + scratch_for_panels(rows, columns, depth) +
           (least(rows, HEIGHT) + ROWS) * length_of_parts(depth) + LANES_OF;
}

/* Some rows of a, which may be packed, and some panels of b.  `apart` is the distance of packed panels; `packed` says whether
 * they are packed already: otherwise the first rows pack them, except panels that are not read again. */
struct block {
    struct matrix a, b;
    int64_t rows, columns, depth;
    int packed_rows, packed, keeps;
    float *panels;
    int64_t apart;
};

/* c = a b, or its transpose, for b by its columns; or c += a b.  Transposed results are computed in `made` first. */
static void multiply_block(const struct block *block, float *c, int64_t c_row, int turned, int adds, float *made) {
    for (int64_t i = 0, count; i < block->rows; i += count) {
        count = rows_at_once(block->rows - i, block->columns);
        struct matrix a = {block->a.at + i * block->a.row, block->a.row, block->a.step};
        if (block->packed_rows) a = (struct matrix){block->a.at + i / ROWS * ROWS * block->depth + i % ROWS, 1, ROWS};
        for (int64_t j = 0; j < block->columns; j += PANEL) {
            const int64_t wide = least(PANEL, block->columns - j);
            const struct matrix b = {block->b.at + j * block->b.row, block->b.row, block->b.step};
            float *const packed = block->panels + j / PANEL * block->apart;
            const int first = !block->packed && i == 0, as_it_is = b.row == 1 && wide == PANEL && (first || !block->keeps);
            if (first && !as_it_is) pack_panel(b, wide, block->depth, packed);
            const float *vectors = as_it_is ? b.at : packed;
            const int64_t apart = as_it_is ? b.step : PANEL;
            float *const kept = as_it_is && block->keeps ? packed : NULL;
            float *const to = turned ? c + j * c_row + i : c + i * c_row + j;
            if (!turned && wide == PANEL) panel_of(count, wide, a, vectors, apart, to, c_row, block->depth, adds, kept);
            else {
                panel_of(count, wide, a, vectors, apart, made, PANEL, block->depth, 0, kept);
                deliver(made, count, wide, turned, to, c_row, adds);
            }
        }
    }
}

/* c = a b, or its transpose, for b by its columns; `added` is added to each row, unless it is NULL. */
static void multiply(int64_t rows, int64_t columns, int64_t depth, struct matrix a, struct matrix b, float *c, int64_t c_row,
                     int turned, const float *added, float *scratch) {
    const int64_t deep = length_of_parts(depth), together = columns_together(deep);
    const int packs = columns >= (a.step == 1 && a.row % CROWDED ? PACK_LINES_FROM : PACK_FROM);
    float *const made = scratch, *const panels = made + LANES_OF * PANEL;
    float *const packed_rows = panels + scratch_for_panels(rows, columns, depth);
    struct block block = {.packed_rows = packs, .keeps = rows > ROWS, .apart = deep * PANEL};
    for (int64_t k = 0; k < depth; k += deep)
        for (int64_t left = 0; left < columns; left += WIDTH)
            for (int64_t top = 0; top < rows; top += HEIGHT) {
                const int64_t right = least(left + WIDTH, columns);
                block.rows = least(HEIGHT, rows - top), block.depth = least(deep, depth - k);
                block.packed = top > 0;
                block.a = (struct matrix){a.at + top * a.row + k * a.step, a.row, a.step};
                if (packs) pack_rows(block.a, block.rows, block.depth, packed_rows), block.a.at = packed_rows;
                for (int64_t j = left; j < right; j += together) {
                    block.columns = least(together, right - j);
                    block.b = (struct matrix){b.at + j * b.row + k * b.step, b.row, b.step};
                    block.panels = rows > HEIGHT ? panels + (j - left) * deep : panels;
                    float *const to = turned ? c + j * c_row + top : c + top * c_row + j;
                    multiply_block(&block, to, c_row, turned, k > 0, made);
                }
                if (added && k + deep >= depth)
                    add_to_each(c + top * c_row + left, block.rows, right - left, c_row, added + left);
            }
}

/* c = a b, for b by its columns, without scratch memory, slowly. */
static void multiply_simply(int64_t rows, int64_t columns, int64_t depth, struct matrix a, struct matrix b, float *c,
                            int64_t c_row) {
    const int64_t deep = length_of_parts(depth);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            for (int64_t k = 0; k < depth; k += deep) {
                float sum = 0;
                for (int64_t l = k; l < least(k + deep, depth); l++)
                    sum = FMA(a.at[i * a.row + l * a.step], b.at[j * b.row + l * b.step], sum);
                c[i * c_row + j] = k ? c[i * c_row + j] + sum : sum;
            }
}

/* The cost of computing the result, or its transpose, in products; `loose`: vectors must be transposed. */
static int64_t cost(int64_t rows, int64_t columns, int64_t depth, int loose) {
    return (columns + LANES_OF - 1) / LANES_OF * LANES_OF * rows * depth + (loose ? AS_A_TURN * columns * depth : 0);
}

/* The result is a b.  The strides are those from row to row and from column to column.  Unless they are NULL, `added` is added to
 * each row of the result, and `sums` receives the sum of each row of a, whose rows then lie side by side. */
struct product {
    const float *a, *b;
    float *result;
    int64_t rows, columns, depth, a_row, a_column, b_row, b_column, result_row;
    const float *added;
    float *sums;
};

void matrix_product(const int64_t *words) {
    const struct product *op = (const struct product *)words;
    EXPECT(op->rows >= 0 && op->columns >= 0 && op->depth >= 0);
    EXPECT(IS_AT(op->a) && IS_AT(op->b) && IS_AT(op->result) && IS_AT_OR_NULL(op->added) && IS_AT_OR_NULL(op->sums));
    const struct matrix a = {op->a, op->a_row, op->a_column}, b = {op->b, op->b_column, op->b_row};
    const int64_t rows = op->rows, columns = op->columns, depth = op->depth;
    const int turned = cost(columns, rows, depth, a.row != 1) + AS_A_TURN * TURNS_A_RESULT * rows * columns <
                       cost(rows, columns, depth, b.row != 1);
    const int64_t needed = turned ? scratch_to_multiply(columns, rows, depth) : scratch_to_multiply(rows, columns, depth);
    float *const scratch = get_scratch(needed);
    if (scratch == NULL) multiply_simply(rows, columns, depth, a, b, op->result, op->result_row);
    else if (turned) multiply(columns, rows, depth, b, a, op->result, op->result_row, 1, NULL, scratch);
    else multiply(rows, columns, depth, a, b, op->result, op->result_row, 0, op->added, scratch);
    if (op->added && (turned || scratch == NULL)) add_to_each(op->result, rows, columns, op->result_row, op->added);
    if (scratch) free_scratch(scratch);
    if (op->sums) sum_columns(op->a, op->sums, rows, depth, op->a_column);
}

/* `count` products: for each, the addresses of its operands and its result in `places`; `words` is shared by all. */
void matrix_products(const int64_t *places, int64_t count, const int64_t *words) {
    struct product each = *(const struct product *)words;
    for (; count; count--, places += 3) {
        each.a = (const float *)places[0], each.b = (const float *)places[1], each.result = (float *)places[2];
        matrix_product((const int64_t *)&each);
    }
}
