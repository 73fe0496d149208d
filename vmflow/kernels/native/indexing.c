/* Elements by index: gathered, put and added; and rows added to those that an index names.
 *
 * An array is (outer, size, inner), the index and what belongs to it are (outer, count, inner): each element has an index
 * along the second dimension.  Rows of all of them lie `apart` elements apart, so that threads can have some of the
 * columns each.  Where an index is not within `size` nothing is read or written, and `wrong` becomes 1.
 *
 * Additions come in the order of the index, as those of numpy's add.at, so that the results are the same to the bit.
 * TYPE becomes the name of an element's type.
 */

/* Whether an index is wrong, which is then known. */
static inline int64_t is_wrong_TYPE(int64_t index, int64_t size, int64_t *wrong) {
    if ((uint64_t)index < (uint64_t)size) return 0;
    return *wrong = 1;
}

static inline __attribute__((always_inline)) void gather_TYPE_of(const TYPE *array, const int64_t *places, TYPE *values,
                                                                  int64_t outer, int64_t count, int64_t size,
                                                                  int64_t inner, int64_t apart, int64_t *wrong) {
    for (; outer; outer--, array += size * apart)
        for (int64_t row = 0; row < count; row++, places += apart, values += apart)
            for (int64_t i = 0; i < inner; i++)
                if (!is_wrong_TYPE(places[i], size, wrong)) values[i] = array[places[i] * apart + i];
}

static inline __attribute__((always_inline)) void scatter_TYPE_of(TYPE *array, const int64_t *places, const TYPE *values,
                                                                   int64_t outer, int64_t count, int64_t size,
                                                                   int64_t inner, int64_t apart, int64_t adds,
                                                                   int64_t *wrong) {
    for (; outer; outer--, array += size * apart)
        for (int64_t row = 0; row < count; row++, places += apart, values += apart)
            for (int64_t i = 0; i < inner; i++)
                if (!is_wrong_TYPE(places[i], size, wrong)) {
                    TYPE *const at = array + places[i] * apart + i;
                    *at = adds ? *at + values[i] : values[i];
                }
}

/* Along the last dimension, rows are of one element: a loop less. */
void gather_TYPE(const TYPE *array, const int64_t *places, TYPE *values, int64_t outer, int64_t count, int64_t size,
                 int64_t inner, int64_t apart, int64_t *wrong) {
    EXPECT(IS_AT(array) && IS_AT(places) && IS_AT(values) && IS_AT(wrong));
    EXPECT(outer >= 0 && count >= 0 && size >= 0 && inner >= 0 && inner <= apart);
    if (apart == 1) gather_TYPE_of(array, places, values, outer, count, size, 1, 1, wrong);
    else gather_TYPE_of(array, places, values, outer, count, size, inner, apart, wrong);
}

void scatter_TYPE(TYPE *array, const int64_t *places, const TYPE *values, int64_t outer, int64_t count, int64_t size,
                  int64_t inner, int64_t apart, int64_t *wrong) {
    EXPECT(IS_AT(array) && IS_AT(places) && IS_AT(values) && IS_AT(wrong));
    EXPECT(outer >= 0 && count >= 0 && size >= 0 && inner >= 0 && inner <= apart);
    if (apart == 1) scatter_TYPE_of(array, places, values, outer, count, size, 1, 1, 0, wrong);
    else scatter_TYPE_of(array, places, values, outer, count, size, inner, apart, 0, wrong);
}

void scatter_add_TYPE(TYPE *array, const int64_t *places, const TYPE *values, int64_t outer, int64_t count, int64_t size,
                      int64_t inner, int64_t apart, int64_t *wrong) {
    EXPECT(IS_AT(array) && IS_AT(places) && IS_AT(values) && IS_AT(wrong));
    EXPECT(outer >= 0 && count >= 0 && size >= 0 && inner >= 0 && inner <= apart);
    if (apart == 1) scatter_TYPE_of(array, places, values, outer, count, size, 1, 1, 1, wrong);
    else scatter_TYPE_of(array, places, values, outer, count, size, inner, apart, 1, wrong);
}

/* The index is (count,): whole rows are added.  One below 0 counts from the end.  Unlike the others it is for arrays that
 * somebody has, and changes nothing if any of the index is wrong. */
void add_rows_TYPE(TYPE *array, const int64_t *places, const TYPE *values, int64_t outer, int64_t count, int64_t size,
                   int64_t inner, int64_t apart, int64_t *wrong) {
    EXPECT(IS_AT(array) && IS_AT(places) && IS_AT(values) && IS_AT(wrong));
    EXPECT(outer >= 0 && count >= 0 && size >= 0 && inner >= 0 && inner <= apart);
    for (int64_t row = 0; row < count; row++)
        if (is_wrong_TYPE(places[row] < 0 ? places[row] + size : places[row], size, wrong)) return;
    for (; outer; outer--, array += size * apart)
        for (int64_t row = 0; row < count; row++, values += apart) {
            const int64_t index = places[row] < 0 ? places[row] + size : places[row];
            TYPE *const at = array + index * apart;
            LANES
            for (int64_t i = 0; i < inner; i++) at[i] += values[i];
        }
}
