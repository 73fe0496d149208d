/* Convolutions of images of float32, and their gradients, without columns in memory.
 *
 * Images are copied to padded memory.  There, the windows of neighbouring pixels begin side by side, as long as a line of the
 * image goes on and the stride is 1.  So a vector of the matrix of columns is a vector of the image; results beyond the end
 * of a line, where there is no pixel, are left out when they are stored.  If lines are too short for that, or the stride is
 * not 1, the windows of a few pixels are gathered into a panel, one row for each tap of the kernel, which stays in the cache
 * until all filters have used it.
 *
 * K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008, tells how to cut products so that
 * registers and cache hold the next operands.
 */

/* The sizes of a convolution; channels and filters are those of a group. */
struct convolution {
    int64_t samples, groups, channels, filters, height, width, kernel_rows, kernel_columns, rows, columns;
    int64_t row_stride, column_stride, row_dilation, column_dilation, above, left, below, right;
};

/* Whether windows of this length and stride lie in a line of so many elements. */
#define LIE_WITHIN(count, stride, length, dilation, size)                                                                      \
    ((count) > 0 && (stride) > 0 && (length) > 0 && (dilation) > 0 &&                                                          \
     ((count)-1) * (stride) + ((length)-1) * (dilation) < (size))

#define EXPECT_CONVOLUTION(op)                                                                                                 \
    EXPECT((op)->samples > 0 && (op)->groups > 0 && (op)->channels > 0 && (op)->filters > 0);                                  \
    EXPECT((op)->above >= 0 && (op)->left >= 0 && (op)->below >= 0 && (op)->right >= 0);                                       \
    EXPECT(LIE_WITHIN((op)->rows, (op)->row_stride, (op)->kernel_rows, (op)->row_dilation,                                     \
                      (op)->height + (op)->above + (op)->below));                                                              \
    EXPECT(LIE_WITHIN((op)->columns, (op)->column_stride, (op)->kernel_columns, (op)->column_dilation,                         \
                      (op)->width + (op)->left + (op)->right))

/* The number of filters, or taps, that are computed together, and of pixels: as many as the registers hold. */
enum { TOGETHER = 6, PIXELS = 16, MOST_PIXELS = 32 };

/* Pixels whose products are added up in registers before they are added to the sums of their filter and tap: fewer would
 * take longer, more would lose digits. */
enum { STRETCH = 256, LONG_STRETCH = 1024 };

/* Pixels that are computed for all filters before they are stored. */
enum { AT_ONCE = 256 };

/* Elements that may be read and written behind the end of an array. */
enum { SLACK = 32 };

/* The elements of padded images that are made together, if a single image does not have more. */
enum { IMAGES = 1 << 14 };

/* So many products take as long as it takes to gather a row of a panel, or to spread one. */
enum { GATHERING = 10, SPREADING = 20 };

/* For the weight's gradient with up to so many filters, vectors are better made of pixels than of filters. */
enum { FEW = 8 };

/* For the input's gradient with up to so many filters, adding products to images takes longer than the products. */
enum { VERY_FEW = 4 };

/* Pixels whose windows begin side by side. */
struct run {
    int64_t from, at, count;
};

/* Sizes that follow from a convolution: the elements of a padded line, plane and image, the taps, the pixels, and the pixels
 * including those beyond the ends of lines; the numbers of images and of pixels that are computed together; and whether windows
 * of a line begin side by side. */
struct sizes {
    int64_t line, plane, image, taps, pixels, span, images, wide, adjacent;
};

static int64_t fewer(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t whole(int64_t count, int64_t of) {
    return (count + of - 1) / of * of;
}

static struct sizes sizes_of(const struct convolution *op) {
    struct sizes s;
    /* The padding behind a line also serves as that before the next one, unless windows that begin in it would overlap. */
    const int64_t both = fewer(op->left, op->right), whole_line = op->left + op->width + op->right;
    const int64_t shared = op->columns <= whole_line - both ? both : 0;
    s.line = whole_line - shared;
    s.plane = (op->above + op->height + op->below) * s.line;
    s.image = op->channels * s.plane + shared;
    s.taps = op->channels * op->kernel_rows * op->kernel_columns;
    s.pixels = op->rows * op->columns;
    s.span = (op->rows - 1) * s.line + op->columns;
    s.images = s.image < IMAGES ? fewer(IMAGES / s.image, op->samples) : 1;
    /* Few filters leave registers for more pixels. */
    s.wide = op->filters <= 3 ? MOST_PIXELS : PIXELS;
    s.adjacent = op->row_stride == 1 && op->column_stride == 1;
    return s;
}

/* Whether the useless pixels beyond the ends of lines take less time than gathering pixels would. */
static int in_lines(const struct convolution *op, const struct sizes *s) {
    return s->adjacent && op->filters * (whole(s->span, s->wide) - s->pixels) <= GATHERING * s->pixels;
}

/* Scratch memory is taken piece by piece, each at the beginning of a line of the cache. */
static int64_t piece(int64_t elements) {
    return whole(elements + SLACK, 16);
}

static float *take(float **scratch, int64_t elements) {
    float *found = *scratch;
    *scratch += piece(elements);
    return found;
}

static float *zeros(float **scratch, int64_t elements) {
    return memset(take(scratch, elements), 0, (size_t)piece(elements) * sizeof(float));
}

static float *aligned(float *scratch) {
    return (float *)(((uintptr_t)scratch + 63) / 64 * 64);
}

/* Find the convolution, `other`, that computes the gradient by the input from that by the output; returns whether there is
 * one. */
static int turned(const struct convolution *op, struct convolution *other) {
    const int64_t down = (op->kernel_rows - 1) * op->row_dilation;
    const int64_t across = (op->kernel_columns - 1) * op->column_dilation;
    *other = *op;
    other->channels = op->filters, other->filters = op->channels;
    other->height = op->rows, other->width = op->columns;
    other->rows = op->height, other->columns = op->width;
    other->above = down - op->above, other->left = across - op->left;
    other->below = op->height - op->rows + op->above, other->right = op->width - op->columns + op->left;
    return op->row_stride == 1 && op->column_stride == 1 && other->above >= 0 && other->left >= 0 &&
           other->below >= 0 && other->right >= 0;
}

static int64_t own_scratch(const struct convolution *op) {
    struct sizes s = sizes_of(op);
    int64_t filters = whole(op->filters, 16), pixels = s.span > STRETCH ? s.span : STRETCH;
    /* Each place takes the memory of two floats; hardly all places are needed at the same time. */
    int64_t places = 2 * (s.images * s.pixels + 2 * s.taps + 2 * op->filters + TOGETHER);
    return piece(s.images * s.image) + piece(s.taps * MOST_PIXELS) + piece(whole(pixels, MOST_PIXELS) * filters) +
           piece(s.taps * filters) + piece(places) + 8 * piece(0) + 16;
}

/* The elements of scratch memory that the functions below need. */
int64_t convolution_scratch(const struct convolution *op) {
    struct convolution other;
    int64_t scratch = own_scratch(op);
    if (op->filters > VERY_FEW || !turned(op, &other)) return scratch;
    int64_t more = own_scratch(&other) + piece(op->groups * op->filters * sizes_of(op).taps);
    return scratch > more ? scratch : more;
}

/* Images and windows */

/* The offset of a tap from the beginning of its window. */
static int64_t offset_of(const struct convolution *op, const struct sizes *s, int64_t tap) {
    int64_t window = op->kernel_rows * op->kernel_columns, channel = tap / window, place = tap % window;
    int64_t row = place / op->kernel_columns, column = place % op->kernel_columns;
    return channel * s->plane + row * op->row_dilation * s->line + column * op->column_dilation;
}

static int64_t *steps(int64_t count, int64_t step, float **scratch) {
    int64_t *found = (int64_t *)take(scratch, 2 * count);
    for (int64_t i = 0; i < count; i++) found[i] = i * step;
    return found;
}

static int64_t *tap_offsets(const struct convolution *op, const struct sizes *s, float **scratch) {
    int64_t *found = (int64_t *)take(scratch, 2 * s->taps);
    for (int64_t tap = 0; tap < s->taps; tap++) found[tap] = offset_of(op, s, tap);
    return found;
}

/* Inline, since a call would take longer than most of these copies. */
static inline void copy_few(float *to, const float *from, int64_t count) {
    for (; count >= 8; count -= 8, to += 8, from += 8) store(to, load(from));
    if (count & 4) memcpy(to, from, 16), to += 4, from += 4;
    if (count & 2) memcpy(to, from, 8), to += 2, from += 2;
    if (count & 1) *to = *from;
}

/* Copy a group's channels of some samples into padded images, whose padding stays as it is, or back. */
static void copy_images(const struct convolution *op, const struct sizes *s, float *outside, float *padded,
                        int64_t count, int inwards) {
    for (int64_t sample = 0; sample < count; sample++, outside += op->groups * op->channels * op->height * op->width) {
        float *line = outside;
        for (int64_t channel = 0; channel < op->channels; channel++) {
            float *place = padded + sample * s->image + channel * s->plane + op->above * s->line + op->left;
            for (int64_t row = 0; row < op->height; row++, line += op->width, place += s->line)
                copy_few(inwards ? place : line, inwards ? line : place, op->width);
        }
    }
}

static int64_t find_runs(const struct convolution *op, const struct sizes *s, int64_t first, int64_t count,
                         struct run *runs) {
    int64_t found = 0, sample = first / s->pixels, row = first % s->pixels / op->columns, column = first % op->columns;
    for (int64_t at = 0; at < count; found++) {
        int64_t length = op->column_stride == 1 ? fewer(op->columns - column, count - at) : 1;
        int64_t from = row * op->row_stride * s->line + column * op->column_stride;
        runs[found] = (struct run){sample * s->image + from, at, length};
        at += length;
        column += length;
        if (column == op->columns) column = 0, row++;
        if (row == op->rows) row = 0, sample++;
    }
    return found;
}

/* Fill a panel with the windows of `count` pixels: one row of `width` for each tap.  Elements that are written behind the end
 * of a run are overwritten by the next run or row. */
static void fill(const float *images, const struct run *runs, int64_t number, int64_t count, const int64_t *offsets,
                 int64_t taps, int64_t width, float *panel) {
    for (int64_t tap = 0; tap < taps; tap++, panel += width) {
        const float *from = images + offsets[tap];
        if (number == count)
            for (int64_t i = 0; i < number; i++) panel[i] = from[runs[i].from];
        else
            for (int64_t i = 0; i < number; i++)
                for (int64_t at = 0; at < runs[i].count; at += 8)
                    store(panel + runs[i].at + at, load(from + runs[i].from + at));
    }
}

/* Copy the pixels of one sample into lines, filter by filter. */
static void copy_into_lines(const struct convolution *op, const struct sizes *s, const float *pixels, int64_t apart,
                            float *lines) {
    for (int64_t filter = 0; filter < op->filters; filter++)
        for (int64_t row = 0; row < op->rows; row++)
            copy_few(lines + filter * apart + row * s->line, pixels + filter * s->pixels + row * op->columns,
                     op->columns);
}

/* Store pixels of all filters of a group: from rows of `AT_ONCE`, with the gaps between lines, to the result. */
static void store_of_lines(const struct convolution *op, const struct sizes *s, float *to, int64_t first, int64_t count,
                           const float *values) {
    int64_t end = first + count;
    for (int64_t row = first / s->line; row * s->line < end; row++) {
        int64_t begin = row * s->line > first ? row * s->line : first;
        int64_t length = fewer(row * s->line + op->columns, end) - begin;
        float *place = to + row * op->columns + begin - row * s->line;
        for (int64_t filter = 0; filter < op->filters; filter++)
            copy_few(place + filter * s->pixels, values + filter * AT_ONCE + begin - first, length);
    }
}

/* Store pixels of rows without gaps, which may go on in the next sample; or, with `inwards`, copy them back to the rows. */
static void copy_pixels(const struct convolution *op, const struct sizes *s, float *outside, int64_t first,
                        int64_t count, int64_t width, float *rows, int inwards) {
    int64_t sample = first / s->pixels, pixel = first % s->pixels;
    for (int64_t at = 0; at < count; sample++, pixel = 0) {
        int64_t length = fewer(s->pixels - pixel, count - at);
        float *place = outside + sample * op->groups * op->filters * s->pixels + pixel, *row = rows + at;
        for (int64_t filter = 0; filter < op->filters; filter++, place += s->pixels, row += width)
            copy_few(inwards ? row : place, inwards ? place : row, length);
        at += length;
    }
}

/* Products */

/* The number of parts, of at most `most` and as equal as possible, of `count` items; part number `part` starts at `begin`. */
static int64_t parts(int64_t count, int64_t most) {
    return (count + most - 1) / most;
}

static int64_t begin(int64_t count, int64_t number, int64_t part) {
    return count * part / number;
}

/* Pack the rows of a matrix into parts of a few rows, column by column within each part. */
static float *packed(const float *matrix, int64_t rows, int64_t columns, const int64_t *row_places,
                     int64_t column_step, float *to) {
    float *next = to;
    int64_t number = parts(rows, TOGETHER);
    for (int64_t part = 0; part < number; part++)
        for (int64_t column = 0; column < columns; column++)
            for (int64_t row = begin(rows, number, part); row < begin(rows, number, part + 1); row++)
                *next++ = matrix[row_places[row] + column * column_step];
    return to;
}

/* m rows of a packed matrix by v vectors of each of the rows that begin at `places`, into rows that begin at `targets`; added to
 * the targets if `adding`, else to the numbers at `start` unless that is null. */
ALWAYS product(const int m, const int v, const int adding, const float *matrix, const float *from,
               const int64_t *places, int64_t length, const float *start, float *to, const int64_t *targets) {
    eight sums[TOGETHER][4];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < v; j++) sums[i][j] = all(!adding && start ? start[i] : 0);
    for (int64_t at = 0; at < length; at++, matrix += m) {
        eight values[4];
        for (int j = 0; j < v; j++) values[j] = load(from + places[at] + 8 * j);
        for (int i = 0; i < m; i++) {
            eight factor = all(matrix[i]);
            for (int j = 0; j < v; j++) sums[i][j] = FMA8(factor, values[j], sums[i][j]);
        }
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < v; j++) {
            float *place = to + targets[i] + 8 * j;
            store(place, adding ? load(place) + sums[i][j] : sums[i][j]);
        }
}

static void multiply(int64_t m, int64_t width, const float *matrix, const float *from, const int64_t *places,
                     int64_t length, const float *start, float *to, const int64_t *targets) {
#define CASE(m, v) \
    case m * 8 + v: product(m, v, 0, matrix, from, places, length, start, to, targets); break;
    switch (m * 8 + width / 8) {
        CASE(1, 4) CASE(2, 4) CASE(3, 4) CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2)
    }
#undef CASE
}

static void multiply_and_add(int64_t m, const float *matrix, const float *from, const int64_t *places, int64_t length,
                             float *to, const int64_t *targets) {
#define CASE(m) \
    case m: product(m, 2, 1, matrix, from, places, length, 0, to, targets); break;
    switch (m) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
    }
#undef CASE
}

/* The three products of a convolution.  Arrays are (samples, groups, channels, height, width), (groups, filters, taps)
 * and (samples, groups, filters, rows, columns). */

/* Compute some pixels of all filters of a group; `bias` may be null. */
static void pixels_of_filters(const struct convolution *op, const struct sizes *s, const float *matrix,
                              const float *from, const int64_t *places, const float *bias, float *to,
                              const int64_t *targets) {
    const int64_t number = parts(op->filters, TOGETHER);
    for (int64_t part = 0; part < number; part++) {
        int64_t first = begin(op->filters, number, part), next = begin(op->filters, number, part + 1);
        multiply(next - first, s->wide, matrix + first * s->taps, from, places, s->taps, bias ? bias + first : 0, to,
                 targets + first);
    }
}

/* `bias` may be null. */
void convolution(const struct convolution *op, const float *from, const float *weight, const float *bias, float *to,
                 float *scratch) {
    EXPECT_CONVOLUTION(op);
    EXPECT(IS_AT(from) && IS_AT(weight) && IS_AT_OR_NULL(bias) && IS_AT(to) && IS_AT(scratch));
    struct sizes s = sizes_of(op);
    struct run runs[MOST_PIXELS];
    scratch = aligned(scratch);
    float *images = zeros(&scratch, s.images * s.image), *panel = take(&scratch, s.taps * s.wide);
    float *values = take(&scratch, op->filters * AT_ONCE);
    const int64_t *offsets = tap_offsets(op, &s, &scratch), *rows = steps(op->filters, s.taps, &scratch);
    const int64_t *panel_rows = steps(s.taps, s.wide, &scratch), *targets = steps(op->filters, AT_ONCE, &scratch);
    const int lined = in_lines(op, &s);
    for (int64_t group = 0; group < op->groups; group++) {
        const float *matrix = packed(weight + group * op->filters * s.taps, op->filters, s.taps, rows, 1, scratch);
        const float *start = bias ? bias + group * op->filters : 0;
        for (int64_t sample = 0, count; sample < op->samples; sample += count) {
            count = fewer(s.images, op->samples - sample);
            const float *source = from + (sample * op->groups + group) * op->channels * op->height * op->width;
            float *target = to + (sample * op->groups + group) * op->filters * s.pixels;
            copy_images(op, &s, (float *)source, images, count, 1);
            for (int64_t image = 0; image < (lined ? count : 1); image++) {
                const int64_t pixels = lined ? s.span : count * s.pixels;
                float *place = target + image * op->groups * op->filters * s.pixels;
                for (int64_t block = 0, some; block < pixels; block += some) {
                    some = fewer(AT_ONCE, pixels - block);
                    for (int64_t pixel = block; pixel < block + some; pixel += s.wide) {
                        const float *seen = lined ? images + image * s.image + pixel : panel;
                        const int64_t few = fewer(s.wide, pixels - pixel);
                        const int64_t found = lined ? 0 : find_runs(op, &s, pixel, few, runs);
                        if (!lined) fill(images, runs, found, few, offsets, s.taps, s.wide, panel);
                        pixels_of_filters(op, &s, matrix, seen, lined ? offsets : panel_rows, start,
                                          values + pixel - block, targets);
                    }
                    if (lined)
                        store_of_lines(op, &s, place, block, some, values);
                    else
                        copy_pixels(op, &s, place, block, some, AT_ONCE, values, 0);
                }
            }
        }
    }
}
