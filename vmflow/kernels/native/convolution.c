/* Convolutions of images of float32, and their gradients, without columns in memory.
 *
 * Images are copied to where they are padded; there the windows of neighbouring pixels begin side by side, as long as a
 * line of the image goes on and the stride is 1.  So a vector of a matrix of columns is a vector of the image, and what
 * is computed beyond the end of a line, where there is no pixel, is left out when results are stored.  Where lines are
 * too short for that, or the stride is not 1, what a few pixels see is gathered into a panel, one row for each tap of
 * the kernel, which stays in the cache until all filters have used it.
 *
 * How products are cut so that registers and cache hold what is needed next is told by K. Goto and R. van de Geijn,
 * Anatomy of High-Performance Matrix Multiplication, 2008.
 */

/* What is convolved; channels and filters are those of a group. */
struct convolution {
    int64_t samples, groups, channels, filters, height, width, kernel_rows, kernel_columns, rows, columns;
    int64_t row_stride, column_stride, row_dilation, column_dilation, above, left, below, right;
};

/* Whether windows of this length and stride lie in a line of so many elements. */
#define LIE_WITHIN(count, stride, length, dilation, size)                                                                      \
    ((count) > 0 && (stride) > 0 && (length) > 0 && (dilation) > 0 &&                                                          \
     ((count)-1) * (stride) + ((length)-1) * (dilation) < (size))

#define EXPECT_CONVOLUTION(it)                                                                                                 \
    EXPECT((it)->samples > 0 && (it)->groups > 0 && (it)->channels > 0 && (it)->filters > 0);                                  \
    EXPECT((it)->above >= 0 && (it)->left >= 0 && (it)->below >= 0 && (it)->right >= 0);                                       \
    EXPECT(LIE_WITHIN((it)->rows, (it)->row_stride, (it)->kernel_rows, (it)->row_dilation,                                     \
                      (it)->height + (it)->above + (it)->below));                                                              \
    EXPECT(LIE_WITHIN((it)->columns, (it)->column_stride, (it)->kernel_columns, (it)->column_dilation,                         \
                      (it)->width + (it)->left + (it)->right))

/* How many filters, or taps, are computed at once, by how many pixels: as many as the registers hold. */
enum { TOGETHER = 6, PIXELS = 16, MOST_PIXELS = 32 };

/* Pixels whose products are added up in registers before they go to the others of their filter and tap: fewer would
 * take longer, more would lose digits. */
enum { STRETCH = 256, LONG_STRETCH = 1024 };

/* Pixels that are computed of all filters before they are put where they belong. */
enum { AT_ONCE = 256 };

/* What may be read and written behind the end of an array, in elements. */
enum { SLACK = 32 };

/* How many elements of padded images are made at once, if one alone does not have more. */
enum { IMAGES = 1 << 14 };

/* As many products take as long as it takes to gather a row of a panel. */
enum { GATHERING = 10, SPREADING = 20 };

/* For so many filters, vectors are better made of pixels than of filters. */
enum { FEW = 8 };

/* For so many, to add products to images takes longer than the products. */
enum { VERY_FEW = 4 };

/* Pixels whose windows begin side by side. */
struct run {
    int64_t from, at, count;
};

/* What follows from a convolution: of a padded image, and of a line of it; how many pixels there are, also those beyond
 * the ends of lines; how many images there are at once, and whether pixels are taken in their lines. */
struct sizes {
    int64_t line, plane, image, taps, pixels, span, images, wide, straight;
};

static int64_t fewer(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t whole(int64_t count, int64_t of) {
    return (count + of - 1) / of * of;
}

static struct sizes sizes_of(const struct convolution *it) {
    struct sizes s;
    /* The padding behind a line is also that before the next one, unless windows that begin in it would overlap. */
    const int64_t both = fewer(it->left, it->right), whole_line = it->left + it->width + it->right;
    const int64_t shared = it->columns <= whole_line - both ? both : 0;
    s.line = whole_line - shared;
    s.plane = (it->above + it->height + it->below) * s.line;
    s.image = it->channels * s.plane + shared;
    s.taps = it->channels * it->kernel_rows * it->kernel_columns;
    s.pixels = it->rows * it->columns;
    s.span = (it->rows - 1) * s.line + it->columns;
    s.images = s.image < IMAGES ? fewer(IMAGES / s.image, it->samples) : 1;
    /* Few filters leave registers for more pixels. */
    s.wide = it->filters <= 3 ? MOST_PIXELS : PIXELS;
    s.straight = it->row_stride == 1 && it->column_stride == 1;
    return s;
}

/* Whether what is computed in vain, beyond the ends of lines, takes less time than to gather pixels. */
static int in_lines(const struct convolution *it, const struct sizes *s) {
    return s->straight && it->filters * (whole(s->span, s->wide) - s->pixels) <= GATHERING * s->pixels;
}

/* Room is taken piece by piece, each at the beginning of a line of the cache. */
static int64_t piece(int64_t elements) {
    return whole(elements + SLACK, 16);
}

static float *take(float **room, int64_t elements) {
    float *found = *room;
    *room += piece(elements);
    return found;
}

static float *zeros(float **room, int64_t elements) {
    return memset(take(room, elements), 0, (size_t)piece(elements) * sizeof(float));
}

static float *aligned(float *room) {
    return (float *)(((uintptr_t)room + 63) / 64 * 64);
}

/* The convolution that makes of the gradient by the output that by the input; returns whether there is one. */
static int turned(const struct convolution *it, struct convolution *other) {
    const int64_t down = (it->kernel_rows - 1) * it->row_dilation;
    const int64_t across = (it->kernel_columns - 1) * it->column_dilation;
    *other = *it;
    other->channels = it->filters, other->filters = it->channels;
    other->height = it->rows, other->width = it->columns;
    other->rows = it->height, other->columns = it->width;
    other->above = down - it->above, other->left = across - it->left;
    other->below = it->height - it->rows + it->above, other->right = it->width - it->columns + it->left;
    return it->row_stride == 1 && it->column_stride == 1 && other->above >= 0 && other->left >= 0 &&
           other->below >= 0 && other->right >= 0;
}

static int64_t own_room(const struct convolution *it) {
    struct sizes s = sizes_of(it);
    int64_t filters = whole(it->filters, 16), pixels = s.span > STRETCH ? s.span : STRETCH;
    /* Of two words each, and hardly all of them at once. */
    int64_t places = 2 * (s.images * s.pixels + 2 * s.taps + 2 * it->filters + TOGETHER);
    return piece(s.images * s.image) + piece(s.taps * MOST_PIXELS) + piece(whole(pixels, MOST_PIXELS) * filters) +
           piece(s.taps * filters) + piece(places) + 8 * piece(0) + 16;
}

/* How many elements of room the functions below need. */
int64_t convolution_room(const struct convolution *it) {
    struct convolution other;
    int64_t room = own_room(it);
    if (it->filters > VERY_FEW || !turned(it, &other)) return room;
    int64_t more = own_room(&other) + piece(it->groups * it->filters * sizes_of(it).taps);
    return room > more ? room : more;
}

/* Images, and what is seen of them */

/* Where a tap is, from where its window begins. */
static int64_t offset_of(const struct convolution *it, const struct sizes *s, int64_t tap) {
    int64_t window = it->kernel_rows * it->kernel_columns, channel = tap / window, place = tap % window;
    int64_t row = place / it->kernel_columns, column = place % it->kernel_columns;
    return channel * s->plane + row * it->row_dilation * s->line + column * it->column_dilation;
}

static int64_t *steps(int64_t count, int64_t step, float **room) {
    int64_t *found = (int64_t *)take(room, 2 * count);
    for (int64_t i = 0; i < count; i++) found[i] = i * step;
    return found;
}

static int64_t *tap_offsets(const struct convolution *it, const struct sizes *s, float **room) {
    int64_t *found = (int64_t *)take(room, 2 * s->taps);
    for (int64_t tap = 0; tap < s->taps; tap++) found[tap] = offset_of(it, s, tap);
    return found;
}

/* Without a call, which would take longer than most of these copies. */
static inline void copy_few(float *to, const float *from, int64_t count) {
    for (; count >= 8; count -= 8, to += 8, from += 8) store(to, load(from));
    if (count & 4) memcpy(to, from, 16), to += 4, from += 4;
    if (count & 2) memcpy(to, from, 8), to += 2, from += 2;
    if (count & 1) *to = *from;
}

/* Copy a group's channels of some samples into padded images, whose padding stays as it is, or back. */
static void copy_images(const struct convolution *it, const struct sizes *s, float *outside, float *padded,
                        int64_t count, int inwards) {
    for (int64_t sample = 0; sample < count; sample++, outside += it->groups * it->channels * it->height * it->width) {
        float *line = outside;
        for (int64_t channel = 0; channel < it->channels; channel++) {
            float *place = padded + sample * s->image + channel * s->plane + it->above * s->line + it->left;
            for (int64_t row = 0; row < it->height; row++, line += it->width, place += s->line)
                copy_few(inwards ? place : line, inwards ? line : place, it->width);
        }
    }
}

static int64_t find_runs(const struct convolution *it, const struct sizes *s, int64_t first, int64_t count,
                         struct run *runs) {
    int64_t found = 0, sample = first / s->pixels, row = first % s->pixels / it->columns, column = first % it->columns;
    for (int64_t at = 0; at < count; found++) {
        int64_t length = it->column_stride == 1 ? fewer(it->columns - column, count - at) : 1;
        int64_t from = row * it->row_stride * s->line + column * it->column_stride;
        runs[found] = (struct run){sample * s->image + from, at, length};
        at += length;
        column += length;
        if (column == it->columns) column = 0, row++;
        if (row == it->rows) row = 0, sample++;
    }
    return found;
}

/* What `count` pixels see: one row of `width` for each tap.  Behind the end of a run there is written what the next
 * one, or the next row, writes over. */
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

/* The pixels of one sample, each filter's in its lines. */
static void copy_into_lines(const struct convolution *it, const struct sizes *s, const float *pixels, int64_t apart,
                            float *lines) {
    for (int64_t filter = 0; filter < it->filters; filter++)
        for (int64_t row = 0; row < it->rows; row++)
            copy_few(lines + filter * apart + row * s->line, pixels + filter * s->pixels + row * it->columns,
                     it->columns);
}

/* Pixels of all filters of a group, from where they are in lines, rows of `AT_ONCE`, to where they belong. */
static void store_of_lines(const struct convolution *it, const struct sizes *s, float *to, int64_t first, int64_t count,
                           const float *values) {
    int64_t end = first + count;
    for (int64_t row = first / s->line; row * s->line < end; row++) {
        int64_t begin = row * s->line > first ? row * s->line : first;
        int64_t length = fewer(row * s->line + it->columns, end) - begin;
        float *place = to + row * it->columns + begin - row * s->line;
        for (int64_t filter = 0; filter < it->filters; filter++)
            copy_few(place + filter * s->pixels, values + filter * AT_ONCE + begin - first, length);
    }
}

/* The same from where they follow each other, also from one sample to the next; or the other way. */
static void copy_pixels(const struct convolution *it, const struct sizes *s, float *outside, int64_t first,
                        int64_t count, int64_t width, float *rows, int inwards) {
    int64_t sample = first / s->pixels, pixel = first % s->pixels;
    for (int64_t at = 0; at < count; sample++, pixel = 0) {
        int64_t length = fewer(s->pixels - pixel, count - at);
        float *place = outside + sample * it->groups * it->filters * s->pixels + pixel, *row = rows + at;
        for (int64_t filter = 0; filter < it->filters; filter++, place += s->pixels, row += width)
            copy_few(inwards ? row : place, inwards ? place : row, length);
        at += length;
    }
}

/* Products */

/* `count` things are cut into parts of at most `most`, as equal as can be, of which part number `part` begins where
 * `begin` says. */
static int64_t parts(int64_t count, int64_t most) {
    return (count + most - 1) / most;
}

static int64_t begin(int64_t count, int64_t number, int64_t part) {
    return count * part / number;
}

/* Rows of a matrix, in parts of a few, within which columns come first. */
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

/* m rows of a packed matrix by v vectors of each of the rows that begin at `places`, into rows that begin at `targets`;
 * added to what is there, or to numbers unless they are null. */
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

/* Some pixels of all filters of a group; `bias` may be null. */
static void pixels_of_filters(const struct convolution *it, const struct sizes *s, const float *matrix,
                              const float *from, const int64_t *places, const float *bias, float *to,
                              const int64_t *targets) {
    const int64_t number = parts(it->filters, TOGETHER);
    for (int64_t part = 0; part < number; part++) {
        int64_t first = begin(it->filters, number, part), next = begin(it->filters, number, part + 1);
        multiply(next - first, s->wide, matrix + first * s->taps, from, places, s->taps, bias ? bias + first : 0, to,
                 targets + first);
    }
}

/* `bias` may be null. */
void convolution(const struct convolution *it, const float *from, const float *weight, const float *bias, float *to,
                 float *room) {
    EXPECT_CONVOLUTION(it);
    EXPECT(IS_AT(from) && IS_AT(weight) && IS_AT_OR_NULL(bias) && IS_AT(to) && IS_AT(room));
    struct sizes s = sizes_of(it);
    struct run runs[MOST_PIXELS];
    room = aligned(room);
    float *images = zeros(&room, s.images * s.image), *panel = take(&room, s.taps * s.wide);
    float *values = take(&room, it->filters * AT_ONCE);
    const int64_t *offsets = tap_offsets(it, &s, &room), *rows = steps(it->filters, s.taps, &room);
    const int64_t *panel_rows = steps(s.taps, s.wide, &room), *targets = steps(it->filters, AT_ONCE, &room);
    const int lined = in_lines(it, &s);
    for (int64_t group = 0; group < it->groups; group++) {
        const float *matrix = packed(weight + group * it->filters * s.taps, it->filters, s.taps, rows, 1, room);
        const float *start = bias ? bias + group * it->filters : 0;
        for (int64_t sample = 0, count; sample < it->samples; sample += count) {
            count = fewer(s.images, it->samples - sample);
            const float *source = from + (sample * it->groups + group) * it->channels * it->height * it->width;
            float *target = to + (sample * it->groups + group) * it->filters * s.pixels;
            copy_images(it, &s, (float *)source, images, count, 1);
            for (int64_t image = 0; image < (lined ? count : 1); image++) {
                const int64_t pixels = lined ? s.span : count * s.pixels;
                float *place = target + image * it->groups * it->filters * s.pixels;
                for (int64_t block = 0, some; block < pixels; block += some) {
                    some = fewer(AT_ONCE, pixels - block);
                    for (int64_t pixel = block; pixel < block + some; pixel += s.wide) {
                        const float *seen = lined ? images + image * s.image + pixel : panel;
                        const int64_t few = fewer(s.wide, pixels - pixel);
                        const int64_t found = lined ? 0 : find_runs(it, &s, pixel, few, runs);
                        if (!lined) fill(images, runs, found, few, offsets, s.taps, s.wide, panel);
                        pixels_of_filters(it, &s, matrix, seen, lined ? offsets : panel_rows, start,
                                          values + pixel - block, targets);
                    }
                    if (lined)
                        store_of_lines(it, &s, place, block, some, values);
                    else
                        copy_pixels(it, &s, place, block, some, AT_ONCE, values, 0);
                }
            }
        }
    }
}
