/* Gathers, puts and adds elements by index; adds rows to the rows that an index names.
 *
 * An array is (outer, size, inner); the index and the values are (outer, count, inner): each element has an index along
 * the second dimension.  The rows of all three lie `apart` elements apart, so that each thread can take some of the
 * columns.  Where an index is not below `size`, nothing is read or written, and `wrong` becomes 1.
 *
 * Additions are made in the order of the index, like numpy's add.at, so that the results agree to the bit.
 * TYPE is replaced by the name of an element's type.
 */

/* Returns whether an index is out of range, and notes it in `wrong`. */
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

/* Along the last dimension, rows have one element: this saves a loop. */
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

/* The index is (count,): whole rows are added.  A negative index counts from the end.  Unlike the functions above, this one
 * changes the caller's array, and so changes nothing if any index is out of range. */
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
