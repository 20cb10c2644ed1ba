/* The loops of manyarms/search/sweep.py, which says what each function computes and holds the same
   in NumPy.

   Every number is the same on every machine: sums have a written order, products and sums are not
   contracted, and exp is a polynomial of our own. So vectors may be of any length. */

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "double must be rounded at every operation"
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT __restrict__
#else
#define INLINE static __forceinline
#define RESTRICT __restrict
#endif
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && !defined(ONE_CLONE)
#if defined(__clang__) ? __clang_major__ >= 14 : __GNUC__ >= 6
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

#define BLOCK 256          /* arms worked on together, at most: what is kept of them stays in cache */
#define MOST_NUMBERS 16384 /* of a block's rows */
#define LARGEST 1e300      /* squared distances above it are left to the kernel, which refuses them */
#define ALONE 32768        /* numbers from which on other threads may run meanwhile */

typedef double *RESTRICT Out;
typedef const double *RESTRICT In;

/* ---- exp(x) for x <= 0 ---------------------------------------------------------------------- */

#define MAGIC 6755399441055744.0 /* 1.5 * 2^52: added, a number is rounded to a whole one */

INLINE double power_of_two(double k) /* -1022 <= k <= 0, whole */
{
    double shifted = k + MAGIC;
    uint64_t bits;
    memcpy(&bits, &shifted, 8);
    bits = (bits + 1023) << 52;
    memcpy(&shifted, &bits, 8);
    return shifted;
}

/* exp(x) = 2^k exp(r), |r| <= ln(2)/2, with exp(r) = 1 + r + r^2 q(r). Its least results are
   subnormal: 2^k is two factors. */
INLINE double exp_of(double x)
{
    x = x > -750.0 ? x : -750.0;
    double k = (x * 1.4426950408889634 + MAGIC) - MAGIC;
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double q = 2.5100424157005067e-08;
    q = q * r + 2.7620138719733994e-07;
    q = q * r + 2.7557268378684192e-06;
    q = q * r + 2.480152119021773e-05;
    q = q * r + 1.9841269863105968e-04;
    q = q * r + 1.3888888917281794e-03;
    q = q * r + 8.333333333330051e-03;
    q = q * r + 4.166666666662399e-02;
    q = q * r + 0.16666666666666669;
    q = q * r + 0.5;
    double high = k > -1000.0 ? k : -1000.0;
    return (1.0 + (r + r * r * q)) * power_of_two(high) * power_of_two(k - high);
}

/* ---- columns -------------------------------------------------------------------------------- */

enum { RBF, MATERN_1, MATERN_3, MATERN_5, HAMMING, TANIMOTO, PACKED, KINDS };

typedef struct { /* k = constant * product of factors, each of the columns start to stop - 1 */
    Py_ssize_t n, d, j, factors;
    const void *X;
    int single;              /* X is float32 */
    const Py_ssize_t *parts; /* kind, start, stop of each factor */
    In W, weights;
    double constant;
    Py_ssize_t block, ld; /* arms of a block, and numbers from one of its columns to the next */
    double *rows;         /* (d + factors, ld): columns of a block, then a size for each factor */
    Out out;
} Columns;

INLINE void turn(const Columns *job, Py_ssize_t start, Py_ssize_t b, int single)
{
    Py_ssize_t d = job->d;
    for (Py_ssize_t i = 0; i < b; i += 8) {
        Py_ssize_t few = b - i < 8 ? b - i : 8;
        for (Py_ssize_t c = 0; c < d; c++) {
            Out to = job->rows + c * job->ld + i;
            if (single) {
                const float *from = (const float *)job->X + (start + i) * d + c;
                for (Py_ssize_t l = 0; l < few; l++) to[l] = from[l * d];
            } else {
                const double *from = (const double *)job->X + (start + i) * d + c;
                for (Py_ssize_t l = 0; l < few; l++) to[l] = from[l * d];
            }
        }
    }
}

INLINE uint64_t whole_of(double x) /* 0 <= x < 2^52 */
{
    uint64_t bits;
    x += 4503599627370496.0;
    memcpy(&bits, &x, 8);
    return bits & 0xfffffffffffffULL;
}

INLINE uint64_t ones_of_bytes(uint64_t x)
{
    x -= (x >> 1) & 0x5555555555555555ULL;
    x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
    return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
}

INLINE double sum_of_bytes(uint64_t x)
{
    x = (x & 0x00ff00ff00ff00ffULL) + ((x >> 8) & 0x00ff00ff00ff00ffULL);
    x += x >> 16;
    x = (x + (x >> 32)) & 0xffff;
    x |= 0x4330000000000000ULL; /* 2^52 + x as a double */
    double result;
    memcpy(&result, &x, 8);
    return result - 4503599627370496.0;
}

/* total[i] = how many bits the packed numbers of x and w have in common; w NULL: of x itself. */
INLINE void common_bits(Out total, In x, const double *w, Py_ssize_t ld, Py_ssize_t columns, Py_ssize_t b)
{
    uint64_t bytes[BLOCK];
    for (Py_ssize_t i = 0; i < b; i++) total[i] = 0.0;
    for (Py_ssize_t c = 0; c < columns; c += 31) { /* 31 times 8 fits a byte */
        Py_ssize_t stop = c + 31 < columns ? c + 31 : columns;
        for (Py_ssize_t i = 0; i < b; i++) bytes[i] = 0;
        for (Py_ssize_t e = c; e < stop; e++) {
            In y = x + e * ld;
            uint64_t with = w ? whole_of(w[e]) : ~0ULL;
            for (Py_ssize_t i = 0; i < b; i++) bytes[i] += ones_of_bytes(whole_of(y[i]) & with);
        }
        for (Py_ssize_t i = 0; i < b; i++) total[i] += sum_of_bytes(bytes[i]);
    }
}

INLINE void dots(Out total, In x, In w, Py_ssize_t ld, Py_ssize_t columns, Py_ssize_t b)
{
    for (Py_ssize_t i = 0; i < b; i++) total[i] = 0.0;
    for (Py_ssize_t c = 0; c < columns; c++) {
        In y = x + c * ld;
        double v = w[c];
        for (Py_ssize_t i = 0; i < b; i++) total[i] += y[i] * v;
    }
}

/* Sizes of a block's rows for Tanimoto kernels; 0 where a row is none that they take. */
INLINE int sizes(const Columns *job, Py_ssize_t f, Py_ssize_t b)
{
    Py_ssize_t start = job->parts[3 * f + 1], stop = job->parts[3 * f + 2];
    Out size = job->rows + (job->d + f) * job->ld;
    In x = job->rows + start * job->ld;
    uint64_t bad = 0;
    if (job->parts[3 * f] == TANIMOTO) {
        for (Py_ssize_t i = 0; i < b; i++) size[i] = 0.0;
        for (Py_ssize_t c = 0; c < stop - start; c++)
            for (Py_ssize_t i = 0; i < b; i++) size[i] += x[c * job->ld + i] * x[c * job->ld + i];
        return 1;
    }
    for (Py_ssize_t c = 0; c < stop - start; c++)
        for (Py_ssize_t i = 0; i < b; i++) {
            double v = x[c * job->ld + i];
            /* whole and below 2^52: 2^52 + v has no other bits */
            bad |= v >= 0.0 && v < 4503599627370496.0 && (v + 4503599627370496.0) - 4503599627370496.0 == v ? 0 : 1;
        }
    if (bad) return 0;
    common_bits(size, x, NULL, job->ld, stop - start, b);
    return 1;
}

INLINE void squared_distances(Out D, In x, In w, In s, Py_ssize_t ld, Py_ssize_t columns, Py_ssize_t b)
{
    for (Py_ssize_t i = 0; i < b; i++) D[i] = 0.0;
    Py_ssize_t c = 0;
    for (; c + 4 <= columns; c += 4) {
        In x0 = x + c * ld, x1 = x0 + ld, x2 = x1 + ld, x3 = x2 + ld;
        double w0 = w[c], w1 = w[c + 1], w2 = w[c + 2], w3 = w[c + 3];
        double s0 = s[c], s1 = s[c + 1], s2 = s[c + 2], s3 = s[c + 3];
        for (Py_ssize_t i = 0; i < b; i++) {
            double u0 = (x0[i] - w0) * s0, u1 = (x1[i] - w1) * s1;
            double u2 = (x2[i] - w2) * s2, u3 = (x3[i] - w3) * s3;
            D[i] += (u0 * u0 + u1 * u1) + (u2 * u2 + u3 * u3);
        }
    }
    for (; c < columns; c++) {
        In x0 = x + c * ld;
        double w0 = w[c], s0 = s[c];
        for (Py_ssize_t i = 0; i < b; i++) {
            double u = (x0[i] - w0) * s0;
            D[i] += u * u;
        }
    }
}

/* One row of `out` for a block of arms; 0 where the kernel must say what is wrong. */
INLINE int entries(const Columns *job, Py_ssize_t a, Py_ssize_t b, Out out)
{
    double D[BLOCK], exponent[BLOCK], polynomial[BLOCK];
    uint64_t bad = 0;
    int plain = 1;
    In weights = job->weights;
    for (Py_ssize_t i = 0; i < b; i++) exponent[i] = 0.0;
    for (Py_ssize_t f = 0; f < job->factors; f++) {
        Py_ssize_t kind = job->parts[3 * f], start = job->parts[3 * f + 1];
        Py_ssize_t columns = job->parts[3 * f + 2] - start;
        In x = job->rows + start * job->ld, w = job->W + a * job->d + start;
        if (kind > MATERN_1 && kind != HAMMING && plain) {
            for (Py_ssize_t i = 0; i < b; i++) polynomial[i] = 1.0;
            plain = 0;
        }
        if (kind == HAMMING) {
            for (Py_ssize_t c = 0; c < columns; c++) {
                double v = w[c], s = weights[c];
                In y = x + c * job->ld;
                for (Py_ssize_t i = 0; i < b; i++) exponent[i] += y[i] != v ? s : 0.0;
            }
        } else if (kind == TANIMOTO || kind == PACKED) {
            In size = job->rows + (job->d + f) * job->ld;
            double own = 0.0;
            for (Py_ssize_t c = 0; c < columns; c++) {
                if (!(w[c] >= 0.0)) return 0;
                if (kind == TANIMOTO) own += w[c] * w[c];
                else if (!(w[c] < 4503599627370496.0 && floor(w[c]) == w[c])) return 0;
                else own += sum_of_bytes(ones_of_bytes(whole_of(w[c])));
            }
            if (kind == TANIMOTO) dots(D, x, w, job->ld, columns, b);
            else common_bits(D, x, w, job->ld, columns, b);
            for (Py_ssize_t i = 0; i < b; i++) {
                double either = size[i] + own - D[i];
                bad |= either <= LARGEST ? 0 : 1;
                polynomial[i] *= either > 0.0 ? D[i] / either : 1.0;
            }
        } else {
            squared_distances(D, x, w, weights, job->ld, columns, b);
            for (Py_ssize_t i = 0; i < b; i++) bad |= D[i] <= LARGEST ? 0 : 1;
            if (kind == RBF)
                for (Py_ssize_t i = 0; i < b; i++) exponent[i] += 0.5 * D[i];
            else if (kind == MATERN_1)
                for (Py_ssize_t i = 0; i < b; i++) exponent[i] += sqrt(D[i]);
            else if (kind == MATERN_3)
                for (Py_ssize_t i = 0; i < b; i++) {
                    double r = sqrt(3.0 * D[i]);
                    exponent[i] += r;
                    polynomial[i] *= 1.0 + r;
                }
            else
                for (Py_ssize_t i = 0; i < b; i++) {
                    double square = 5.0 * D[i], r = sqrt(square);
                    exponent[i] += r;
                    polynomial[i] *= 1.0 + (r + square * (1.0 / 3.0));
                }
        }
        weights += columns;
    }
    if (bad) return 0;
    if (plain)
        for (Py_ssize_t i = 0; i < b; i++) out[i] = job->constant * exp_of(-exponent[i]);
    else
        for (Py_ssize_t i = 0; i < b; i++) {
            double e = exp_of(-exponent[i]);
            /* a polynomial may overflow where e is 0 */
            out[i] = job->constant * (e > 0.0 ? polynomial[i] * e : 0.0);
        }
    return 1;
}

CLONES static int fill(const Columns *job)
{
    for (Py_ssize_t start = 0; start < job->n; start += job->block) {
        Py_ssize_t b = job->n - start < job->block ? job->n - start : job->block;
        if (job->single) turn(job, start, b, 1);
        else turn(job, start, b, 0);
        for (Py_ssize_t f = 0; f < job->factors; f++)
            if (job->parts[3 * f] >= TANIMOTO && !sizes(job, f, b)) return 0;
        for (Py_ssize_t a = 0; a < job->j; a++)
            if (!entries(job, a, b, job->out + a * job->n + start)) return 0;
    }
    return 1;
}

/* ---- step, peak, reach, squares -------------------------------------------------------------- */

typedef struct {
    Py_ssize_t n, p, m, k, ld;
    In ahead, corner, G, surprise;
    double *Z, *sums; /* sums: (m - p + k, BLOCK) */
    Out mean, variance;
} Step;

INLINE void add(Out sum, In z, double w, Py_ssize_t b)
{
    for (Py_ssize_t i = 0; i < b; i++) sum[i] += w * z[i];
}

INLINE void add_four(Out sum, In z0, Py_ssize_t ld, In w, Py_ssize_t b)
{
    In z1 = z0 + ld, z2 = z1 + ld, z3 = z2 + ld;
    double w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    for (Py_ssize_t i = 0; i < b; i++)
        sum[i] += (w0 * z0[i] + w1 * z1[i]) + (w2 * z2[i] + w3 * z3[i]);
}

CLONES static void bring(const Step *job)
{
    Py_ssize_t p = job->p, m = job->m, r = m - p, k = job->k, ld = job->ld;
    for (Py_ssize_t start = 0; start < job->n; start += BLOCK) {
        Py_ssize_t b = job->n - start < BLOCK ? job->n - start : BLOCK;
        double *Z = job->Z + start;
        double *H = job->sums + r * BLOCK;
        for (Py_ssize_t i = 0; i < (r + k) * BLOCK; i++) job->sums[i] = 0.0;
        /* Both products of the old coordinates, while four of their rows are in cache. */
        Py_ssize_t c = 0;
        for (; c + 4 <= p; c += 4) {
            for (Py_ssize_t a = 0; a < r; a++)
                add_four(job->sums + a * BLOCK, Z + c * ld, ld, job->ahead + a * p + c, b);
            for (Py_ssize_t a = 0; a < k; a++)
                add_four(H + a * BLOCK, Z + c * ld, ld, job->G + a * m + c, b);
        }
        for (; c < p; c++) {
            for (Py_ssize_t a = 0; a < r; a++)
                add(job->sums + a * BLOCK, Z + c * ld, job->ahead[a * p + c], b);
            for (Py_ssize_t a = 0; a < k; a++) add(H + a * BLOCK, Z + c * ld, job->G[a * m + c], b);
        }
        for (Py_ssize_t a = 0; a < r; a++) {
            In w = job->corner + a * r;
            Out z = Z + (p + a) * ld;
            double *sum = job->sums + a * BLOCK;
            for (Py_ssize_t e = 0; e < a; e++) add(sum, Z + (p + e) * ld, w[e], b);
            double pivot = w[a];
            for (Py_ssize_t i = 0; i < b; i++) z[i] = (z[i] - sum[i]) / pivot;
            for (Py_ssize_t e = 0; e < k; e++) add(H + e * BLOCK, z, job->G[e * m + p + a], b);
        }
        Out mean = job->mean + start, variance = job->variance + start;
        for (Py_ssize_t a = 0; a < k; a++) {
            In h = H + a * BLOCK;
            double w = job->surprise[a];
            for (Py_ssize_t i = 0; i < b; i++) {
                mean[i] += w * h[i];
                variance[i] -= h[i] * h[i];
            }
        }
        for (Py_ssize_t i = 0; i < b; i++) variance[i] = variance[i] < 0.0 ? 0.0 : variance[i];
    }
}

CLONES static Py_ssize_t highest(In mean, In variance, const unsigned char *shut, Py_ssize_t n,
                                 double beta, double offset, double *value)
{
    double best = -HUGE_VAL, upper[BLOCK], tops[8];
    Py_ssize_t at = -1;
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        Py_ssize_t b = n - start < BLOCK ? n - start : BLOCK, whole = b & ~(Py_ssize_t)7;
        for (Py_ssize_t i = 0; i < b; i++) {
            double v = variance[start + i] + offset;
            upper[i] = mean[start + i] + beta * sqrt(v > 0.0 ? v : 0.0);
        }
        if (shut)
            for (Py_ssize_t i = 0; i < b; i++) upper[i] = shut[start + i] ? -HUGE_VAL : upper[i];
        for (int l = 0; l < 8; l++) tops[l] = -HUGE_VAL;
        for (Py_ssize_t i = 0; i < whole; i += 8)
            for (int l = 0; l < 8; l++) tops[l] = upper[i + l] > tops[l] ? upper[i + l] : tops[l];
        for (Py_ssize_t i = whole; i < b; i++) tops[0] = upper[i] > tops[0] ? upper[i] : tops[0];
        double top = tops[0];
        for (int l = 1; l < 8; l++) top = tops[l] > top ? tops[l] : top;
        if (top > best) {
            best = top;
            at = start;
            while (upper[at - start] != top) at++;
        }
    }
    *value = best;
    return at;
}

CLONES static Py_ssize_t reaching(In mean, In variance, const unsigned char *shut, Py_ssize_t n,
                                  In need, Py_ssize_t steps, double scale, Py_ssize_t *RESTRICT found)
{
    Py_ssize_t count = 0;
    double last = (double)(steps - 1);
    int32_t reaches[BLOCK];
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        Py_ssize_t b = n - start < BLOCK ? n - start : BLOCK;
        int32_t any = 0;
        for (Py_ssize_t i = 0; i < b; i++) {
            double step = variance[start + i] * scale;
            step = step > 0.0 ? step : 0.0;
            step = step < last ? step : last;
            reaches[i] = mean[start + i] >= need[(int32_t)step];
            any |= reaches[i];
        }
        if (!any) continue;
        for (Py_ssize_t i = 0; i < b; i++)
            if (reaches[i] && !(shut && shut[start + i])) found[count++] = start + i;
    }
    return count;
}

CLONES static void sum_squares(const double *Z, Py_ssize_t m, Py_ssize_t ld, Py_ssize_t n, Out sums)
{
    for (Py_ssize_t start = 0; start < n; start += BLOCK) {
        Py_ssize_t b = n - start < BLOCK ? n - start : BLOCK;
        Out sum = sums + start;
        for (Py_ssize_t i = 0; i < b; i++) sum[i] = 0.0;
        for (Py_ssize_t c = 0; c < m; c++) {
            In z = Z + c * ld + start;
            for (Py_ssize_t i = 0; i < b; i++) sum[i] += z[i] * z[i];
        }
    }
}

/* ---- Python ---------------------------------------------------------------------------------- */

#define MOST_BUFFERS 8

typedef struct { /* what a call holds: every buffer is given back by `release` */
    Py_buffer views[MOST_BUFFERS];
    int held;
} Held;

static PyObject *release(Held *held, PyObject *result)
{
    while (held->held) PyBuffer_Release(&held->views[--held->held]);
    return result;
}

/* The buffer of an array of these item types, its last axis contiguous; NULL with an error set.
   `rows` or `columns` -1: of any size. A vector has rows 0. `step`, where given, is set to the
   numbers from one row to the next, which else must be contiguous. */
static Py_buffer *buffer(Held *held, PyObject *from, const char *name, const char *types, int writable,
                         int axes, Py_ssize_t rows, Py_ssize_t columns, Py_ssize_t *step)
{
    Py_buffer *view = &held->views[held->held];
    if (PyObject_GetBuffer(from, view, PyBUF_STRIDES | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)))
        return NULL;
    held->held++;
    const char *format = view->format ? view->format : "B";
    if (!format[0] || format[1] || !strchr(types, format[0])) {
        PyErr_Format(PyExc_TypeError, "%s must have items of format %s, got %s", name, types, format);
        return NULL;
    }
    if (view->ndim != axes) {
        PyErr_Format(PyExc_ValueError, "%s must have %d axes, got %d", name, axes, view->ndim);
        return NULL;
    }
    Py_ssize_t has_rows = axes == 2 ? view->shape[0] : 1, has = view->shape[axes - 1];
    if ((axes == 2 && rows >= 0 && has_rows != rows) || (columns >= 0 && has != columns)) {
        PyErr_Format(PyExc_ValueError, "%s must have %zd rows of %zd, got %zd of %zd (-1: any)", name,
                     axes == 2 ? rows : 1, columns, has_rows, has);
        return NULL;
    }
    Py_ssize_t size = view->itemsize, between = has * size;
    if (step && has_rows > 1) between = view->strides[0];
    if ((has > 1 && has_rows && view->strides[axes - 1] != size) ||
        (axes == 2 && has_rows > 1 && has && view->strides[0] != between) || between < has * size ||
        between % size || (uintptr_t)view->buf % size) {
        PyErr_Format(PyExc_ValueError, "%s must be contiguous and aligned", name);
        return NULL;
    }
    if (step) *step = between / size;
    return view;
}

static Py_buffer *matrix(Held *held, PyObject *from, const char *name, Py_ssize_t rows, Py_ssize_t columns)
{
    return buffer(held, from, name, "d", 0, 2, rows, columns, NULL);
}

static Py_buffer *vector(Held *held, PyObject *from, const char *name, int writable, Py_ssize_t size)
{
    return buffer(held, from, name, "d", writable, 1, 0, size, NULL);
}

static int given(Py_ssize_t n, Py_ssize_t expected)
{
    if (n == expected) return 1;
    PyErr_Format(PyExc_TypeError, "takes %zd arguments, got %zd", expected, n);
    return 0;
}

#define LOOPS(numbers, loops)                                                    \
    do {                                                                         \
        PyThreadState *others = (numbers) >= ALONE ? PyEval_SaveThread() : NULL; \
        loops;                                                                   \
        if (others) PyEval_RestoreThread(others);                                \
    } while (0)

static PyObject *columns(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Held held = {.held = 0};
    Columns job;
    Py_buffer *out, *X, *W, *parts, *weights;
    if (!given(count, 6)) return NULL;
    job.constant = PyFloat_AsDouble(args[5]);
    if (job.constant == -1.0 && PyErr_Occurred()) return NULL;
    if (!(X = buffer(&held, args[1], "X", "df", 0, 2, -1, -1, NULL)) ||
        !(W = matrix(&held, args[2], "W", -1, X->shape[1])) ||
        !(out = buffer(&held, args[0], "out", "d", 1, 2, W->shape[0], X->shape[0], NULL)) ||
        !(parts = buffer(&held, args[3], "parts", "lqn", 0, 2, -1, 3, NULL)) ||
        !(weights = vector(&held, args[4], "weights", 0, -1)))
        return release(&held, NULL);
    if (parts->itemsize != sizeof(Py_ssize_t)) {
        PyErr_SetString(PyExc_TypeError, "parts must be of numpy.intp");
        return release(&held, NULL);
    }
    job.n = X->shape[0];
    job.d = X->shape[1];
    job.j = W->shape[0];
    job.single = X->itemsize == 4;
    job.factors = parts->shape[0];
    job.X = X->buf;
    job.W = W->buf;
    job.parts = parts->buf;
    job.weights = weights->buf;
    job.out = out->buf;
    Py_ssize_t used = 0;
    for (Py_ssize_t f = 0; f < job.factors; f++) {
        const Py_ssize_t *part = job.parts + 3 * f;
        if (part[0] < 0 || part[0] >= KINDS || part[1] < 0 || part[2] < part[1] || part[2] > job.d) {
            PyErr_Format(PyExc_ValueError, "factor %zd is not of the %zd columns of X", f, job.d);
            return release(&held, NULL);
        }
        used += part[2] - part[1];
    }
    if (used != weights->shape[0]) {
        PyErr_Format(PyExc_ValueError, "weights must be %zd, got %zd", used, weights->shape[0]);
        return release(&held, NULL);
    }
    job.block = BLOCK;
    while (job.block > 16 && job.block * job.d > MOST_NUMBERS) job.block /= 2;
    job.ld = job.block + 8; /* no power of two, which a cache would put at one place */
    /* Within what fits a size: the rows themselves are in memory, 16 of them at least or W. */
    if (job.d + job.factors > PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(double) / job.ld ||
        !(job.rows = malloc((size_t)(job.d + job.factors + 1) * job.ld * sizeof(double)))) {
        PyErr_NoMemory();
        return release(&held, NULL);
    }
    int fine;
    LOOPS(job.n * job.j, fine = fill(&job));
    free(job.rows);
    return release(&held, PyBool_FromLong(fine));
}

static PyObject *step(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Held held = {.held = 0};
    Step job;
    Py_buffer *Z, *ahead, *corner, *G, *surprise, *mean, *variance;
    if (!given(count, 9)) return NULL;
    job.p = PyLong_AsSsize_t(args[1]);
    if (job.p == -1 && PyErr_Occurred()) return NULL;
    job.m = PyLong_AsSsize_t(args[2]);
    if (job.m == -1 && PyErr_Occurred()) return NULL;
    if (!(Z = buffer(&held, args[0], "Z", "d", 1, 2, -1, -1, &job.ld))) return release(&held, NULL);
    if (job.p < 0 || job.m < job.p || job.m > Z->shape[0]) {
        PyErr_Format(PyExc_ValueError, "Z has %zd rows: 0 <= p <= m <= %zd, got p = %zd and m = %zd",
                     Z->shape[0], Z->shape[0], job.p, job.m);
        return release(&held, NULL);
    }
    Py_ssize_t n = Z->shape[1], r = job.m - job.p;
    job.ahead = job.corner = NULL;
    if (r) { /* else they are not read */
        if (!(ahead = matrix(&held, args[3], "ahead", r, job.p)) ||
            !(corner = matrix(&held, args[4], "corner", r, r)))
            return release(&held, NULL);
        job.ahead = ahead->buf;
        job.corner = corner->buf;
    }
    if (!(G = matrix(&held, args[5], "G", -1, job.m)) ||
        !(surprise = vector(&held, args[6], "surprise", 0, G->shape[0])) ||
        !(mean = vector(&held, args[7], "mean", 1, n)) ||
        !(variance = vector(&held, args[8], "variance", 1, n)))
        return release(&held, NULL);
    job.n = n;
    job.k = G->shape[0];
    job.G = G->buf;
    job.surprise = surprise->buf;
    job.mean = mean->buf;
    job.variance = variance->buf;
    job.Z = Z->buf;
    double few[2 * BLOCK];
    job.sums = r + job.k <= 2 ? few : malloc((size_t)(r + job.k) * BLOCK * sizeof(double));
    if (!job.sums) {
        PyErr_NoMemory();
        return release(&held, NULL);
    }
    LOOPS(n * (job.m + 1), bring(&job));
    if (job.sums != few) free(job.sums);
    release(&held, NULL);
    Py_RETURN_NONE;
}

/* mean, variance and shut (or None) of n arms. */
static int arms(Held *held, PyObject *const *args, Py_ssize_t *n, In *mean, In *variance,
                const unsigned char **shut)
{
    Py_buffer *view = vector(held, args[0], "mean", 0, -1);
    if (!view) return 0;
    *n = view->shape[0];
    *mean = view->buf;
    if (!(view = vector(held, args[1], "variance", 0, *n))) return 0;
    *variance = view->buf;
    *shut = NULL;
    if (args[2] == Py_None) return 1;
    if (!(view = buffer(held, args[2], "shut", "?B", 0, 1, 0, *n, NULL))) return 0;
    *shut = view->buf;
    return 1;
}

static PyObject *peak(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Held held = {.held = 0};
    In mean, variance;
    const unsigned char *shut;
    Py_ssize_t n, at;
    double value;
    if (!given(count, 5)) return NULL;
    double beta = PyFloat_AsDouble(args[3]);
    if (beta == -1.0 && PyErr_Occurred()) return NULL;
    double offset = PyFloat_AsDouble(args[4]);
    if (offset == -1.0 && PyErr_Occurred()) return NULL;
    if (!arms(&held, args, &n, &mean, &variance, &shut)) return release(&held, NULL);
    LOOPS(n, at = highest(mean, variance, shut, n, beta, offset, &value));
    return release(&held, Py_BuildValue("(nd)", at, value));
}

static PyObject *reach(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Held held = {.held = 0};
    In mean, variance;
    const unsigned char *shut;
    Py_ssize_t n, found;
    Py_buffer *need, *places;
    if (!given(count, 6)) return NULL;
    double scale = PyFloat_AsDouble(args[4]);
    if (scale == -1.0 && PyErr_Occurred()) return NULL;
    if (!arms(&held, args, &n, &mean, &variance, &shut) ||
        !(need = vector(&held, args[3], "need", 0, -1)) ||
        !(places = buffer(&held, args[5], "places", "lqn", 1, 1, 0, n, NULL)))
        return release(&held, NULL);
    if (need->shape[0] < 1 || need->shape[0] > INT32_MAX || places->itemsize != sizeof(Py_ssize_t)) {
        PyErr_SetString(PyExc_ValueError, "need must not be empty, and places of numpy.intp");
        return release(&held, NULL);
    }
    LOOPS(n, found = reaching(mean, variance, shut, n, need->buf, need->shape[0], scale, places->buf));
    return release(&held, PyLong_FromSsize_t(found));
}

static PyObject *squares(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Held held = {.held = 0};
    Py_ssize_t ld;
    Py_buffer *Z, *sums;
    if (!given(count, 2)) return NULL;
    if (!(Z = buffer(&held, args[0], "Z", "d", 0, 2, -1, -1, &ld)) ||
        !(sums = vector(&held, args[1], "sums", 1, Z->shape[1])))
        return release(&held, NULL);
    Py_ssize_t m = Z->shape[0], n = Z->shape[1];
    LOOPS(m * n, sum_squares(Z->buf, m, ld, n, sums->buf));
    release(&held, NULL);
    Py_RETURN_NONE;
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FUNCTION(columns), FUNCTION(step), FUNCTION(peak), FUNCTION(reach), FUNCTION(squares), {NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_sweep", .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__sweep(void)
{
    return PyModuleDef_Init(&definition);
}
