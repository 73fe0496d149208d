/* Steps of optimizers, each in one pass over a parameter, its gradient and its state.
 *
 * The operations and their order are those of vmflow/kernels/numpy/updates, so that the results agree to the bit.
 * REAL is replaced by float and double.
 */

static inline REAL decayed_REAL(REAL parameter, REAL gradient, REAL decay, int64_t decays, int64_t maximizes) {
    REAL share = parameter * decay;
    REAL with = maximizes ? share - gradient : share + gradient;
    REAL without = maximizes ? -gradient : gradient;
    return decays ? with : without;
}

static void sgd_REAL(REAL *parameter, const REAL *gradient, int64_t n, double rate_, double decay_, int64_t maximizes) {
    const REAL rate = (REAL)rate_, decay = (REAL)decay_;
    const int64_t decays = decay_ != 0;
    LANES
    for (int64_t i = 0; i < n; i++) {
        REAL direction = decayed_REAL(parameter[i], gradient[i], decay, decays, maximizes);
        parameter[i] = parameter[i] - direction * rate;
    }
}

/* `taken`: the factor of the gradient in the running sum; `first`: whether the running sum is still empty. */
static void sgd_momentum_REAL(REAL *parameter, REAL *running, const REAL *gradient, int64_t n, double rate_, double decay_,
                       double momentum_, double taken_, int64_t maximizes, int64_t nesterov, int64_t first) {
    const REAL rate = (REAL)rate_, decay = (REAL)decay_, momentum = (REAL)momentum_, taken = (REAL)taken_;
    const int64_t decays = decay_ != 0, damped = taken_ != 1;
    LANES
    for (int64_t i = 0; i < n; i++) {
        REAL direction = decayed_REAL(parameter[i], gradient[i], decay, decays, maximizes);
        REAL sum = running[i] * momentum + (damped ? direction * taken : direction);
        sum = first ? direction : sum;
        running[i] = sum;
        direction = nesterov ? direction + sum * momentum : sum;
        parameter[i] = parameter[i] - direction * rate;
    }
}

/* `shrink`: the parameter's factor before the step; `eps` and `size`: corrected as in vmflow/kernels/numpy/updates/adam.py. */
static void adam_REAL(REAL *parameter, REAL *average, REAL *square, const REAL *gradient, int64_t n, double shrink_,
               double decay_, int64_t maximizes, double beta1, double beta2, double eps_,
               double size_) {
    const REAL shrink = (REAL)shrink_, decay = (REAL)decay_, eps = (REAL)eps_, size = (REAL)size_;
    const REAL weight = (REAL)(1 - beta1), keep = (REAL)beta2, add = (REAL)(1 - beta2);
    const int64_t decays = decay_ != 0;
    LANES
    for (int64_t i = 0; i < n; i++) {
        REAL before = parameter[i] * shrink;
        REAL direction = decayed_REAL(before, gradient[i], decay, decays, maximizes);
        REAL mean = average[i] + (direction - average[i]) * weight;
        REAL spread = square[i] * keep + direction * direction * add;
        average[i] = mean;
        square[i] = spread;
        parameter[i] = before - mean / (ROOT(spread) + eps) * size;
    }
}

/* Steps of several parameters, given as a table of parts of them: `groups` times `rows` rows.  A row holds the addresses of a
 * part's arrays, its number of elements, and its parameter's number.  `values` holds the settings that all parameters share,
 * and then each parameter's own values. */

void sgd_steps_REAL(const int64_t *table, const double *values, int64_t groups, int64_t rows) {
    const double rate = values[0], decay = values[1];
    for (int64_t count = groups * rows; count; count--, table += 4)
        sgd_REAL((REAL *)table[0], (const REAL *)table[1], table[2], rate, decay, values[2] != 0);
}

void sgd_momentum_steps_REAL(const int64_t *table, const double *values, int64_t groups, int64_t rows) {
    const double rate = values[0], decay = values[1], momentum = values[2], taken = values[3], *const first = values + 6;
    for (int64_t count = groups * rows; count; count--, table += 5)
        sgd_momentum_REAL((REAL *)table[0], (REAL *)table[1], (const REAL *)table[2], table[3], rate, decay, momentum,
                          taken, values[4] != 0, values[5] != 0, first[table[4]] != 0);
}

void adam_steps_REAL(const int64_t *table, const double *values, int64_t groups, int64_t rows) {
    const double decay = values[0], beta1 = values[2], beta2 = values[3];
    for (int64_t count = groups * rows; count; count--, table += 6) {
        const double *const own = values + 4 + 3 * table[5];
        adam_REAL((REAL *)table[0], (REAL *)table[1], (REAL *)table[2], (const REAL *)table[3], table[4], own[0], decay,
                  values[1] != 0, beta1, beta2, own[1], own[2]);
    }
}
