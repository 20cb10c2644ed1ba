/* The loops of manyarms/search/sweep.py, which says what each function computes, and holds the
   same in NumPy.

   Results are the same bits on every machine: sums have a written order, products and sums are
   not contracted, and exp is our own. So a processor may take vectors as long as it has. */

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

#ifdef __GNUC__
#define INLINE static inline __attribute__((always_inline))
#define RESTRICT __restrict__
#define ALIGNED __attribute__((aligned(64))) /* no vector then lies in two lines of the cache */
#else
#define INLINE static __forceinline
#define RESTRICT __restrict
#define ALIGNED __declspec(align(64))
#endif
/* A loop for each length of vectors; which one runs is chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GLIBC__) && !defined(ONE_CLONE)
#if defined(__clang__) ? __clang_major__ >= 14 : __GNUC__ >= 6
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

#define BLOCK 256         /* arms worked on together: what is kept of them stays in cache */
#define FAR 1024          /* the same where many rows are read, so that the run of each is long */
#define MOST_NUMBERS 8192 /* in the rows of a block */
#define LARGEST 1e300     /* squared distances above it are for the kernel, which refuses them */
#define ALONE 32768       /* numbers from which on other threads may run meanwhile */

typedef Py_ssize_t Size;
typedef double *RESTRICT Out;
typedef const double *RESTRICT In;

/* exp(x) for x <= 0, as 2^k exp(r), |r| <= ln(2)/2, exp(r) = 1 + r + r^2 q(r). Added to 1.5 * 2^52,
   a number is rounded to a whole one, here k + 64 + 1023: shifted to its place, it is 2^(k + 64).
   The least results are subnormal, and come of the last product. */
INLINE double exp_of(double x)
{
    const double shift = 6755399441055744.0 + 64 + 1023;
    x = x > -750.0 ? x : -750.0;
    double shifted = x * 1.4426950408889634 + shift, power;
    double k = shifted - shift;
    double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    double r2 = r * r, r4 = r2 * r2;
    /* Pairs, and pairs of pairs: a processor works on several at a time. */
    double q0 = (0.5 + 0.16666666666666669 * r) +
                r2 * (4.166666666662399e-02 + 8.333333333330051e-03 * r);
    double q4 = (1.3888888917281794e-03 + 1.9841269863105968e-04 * r) +
                r2 * (2.480152119021773e-05 + 2.7557268378684192e-06 * r);
    double q8 = 2.7620138719733994e-07 + 2.5100424157005067e-08 * r;
    double q = q0 + r4 * (q4 + r4 * q8);
    uint64_t bits;
    memcpy(&bits, &shifted, 8);
    bits <<= 52;
    memcpy(&power, &bits, 8);
    return (1.0 + (r + r2 * q)) * power * 5.421010862427522e-20; /* 2^-64 */
}

/* ---- columns -------------------------------------------------------------------------------- */

enum { RBF, MATERN_1, MATERN_3, MATERN_5, HAMMING, TANIMOTO, KINDS };

typedef struct {
    Size n, d, j, factors, far; /* far: numbers from a row of `out` to the next */
    const void *X;
    int single;        /* X is float32 */
    const Size *parts; /* kind, start and stop of each factor */
    In W, weights;
    double constant;
    Size block, ld; /* arms of a block, and numbers from one of its columns to the next */
    Out rows;       /* (d + factors, ld): columns of a block, and sizes of its sets of bits */
    Out out;
} Columns;

/* b rows of X as columns, four rows at a time; the last one again where there are fewer. */
#define TURN(name, type)                                                                           \
    INLINE void name(Out to, const type *RESTRICT X, Size d, Size ld, Size b)                      \
    {                                                                                              \
        for (Size i = 0; i < b; i += 4) {                                                          \
            const type *x0 = X + i * d, *x1 = i + 1 < b ? x0 + d : x0;                             \
            const type *x2 = i + 2 < b ? x1 + d : x1, *x3 = i + 3 < b ? x2 + d : x2;               \
            for (Size c = 0; c < d; c++) {                                                         \
                Out four = to + c * ld + i;                                                        \
                four[0] = x0[c];                                                                   \
                four[1] = x1[c];                                                                   \
                four[2] = x2[c];                                                                   \
                four[3] = x3[c];                                                                   \
            }                                                                                      \
        }                                                                                          \
    }
TURN(turn_single, float)
TURN(turn_double, double)

INLINE double square_of(double x, double w, double s)
{
    double u = (x - w) * s;
    return u * u;
}

INLINE void squared_distances(Out D, In x, In w, In s, Size ld, Size columns, Size b)
{
    /* So many columns first that a number of fours is left. */
    Size c = columns % 4;
    if (c == 0)
        for (Size i = 0; i < b; i++) D[i] = 0.0;
    else
        for (Size i = 0; i < b; i++) D[i] = square_of(x[i], w[0], s[0]);
    for (Size e = 1; e < c; e++) {
        In y = x + e * ld;
        double v = w[e], t = s[e];
        for (Size i = 0; i < b; i++) D[i] += square_of(y[i], v, t);
    }
    for (; c < columns; c += 4) {
        In x0 = x + c * ld, x1 = x0 + ld, x2 = x1 + ld, x3 = x2 + ld;
        double w0 = w[c], w1 = w[c + 1], w2 = w[c + 2], w3 = w[c + 3];
        double s0 = s[c], s1 = s[c + 1], s2 = s[c + 2], s3 = s[c + 3];
        for (Size i = 0; i < b; i++)
            D[i] += (square_of(x0[i], w0, s0) + square_of(x1[i], w1, s1)) +
                    (square_of(x2[i], w2, s2) + square_of(x3[i], w3, s3));
    }
}

#define WORDS 4503599627370496.0 /* 2^52: packed numbers are below it, and its last bit is 1 */

INLINE int is_packed(double x) { return x >= 0.0 && x < WORDS && (x + WORDS) - WORDS == x; }

INLINE uint64_t bits_of(double x)
{
    uint64_t bits;
    x += WORDS;
    memcpy(&bits, &x, 8);
    return bits & 0xfffffffffffffULL;
}

/* How many bits of each byte are 1, as bytes; and the sum of eight bytes. */
INLINE uint64_t counts(uint64_t x)
{
    x -= (x >> 1) & 0x5555555555555555ULL;
    x = (x & 0x3333333333333333ULL) + ((x >> 2) & 0x3333333333333333ULL);
    return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
}

INLINE double total(uint64_t x)
{
    double sum;
    x = (x & 0x00ff00ff00ff00ffULL) + ((x >> 8) & 0x00ff00ff00ff00ffULL);
    x += x >> 16;
    x = ((x + (x >> 32)) & 0xffff) | 0x4330000000000000ULL; /* added to 2^52 */
    memcpy(&sum, &x, 8);
    return sum - WORDS;
}

/* How many bits packed numbers have in common with w; where w is NULL, how many they have. */
INLINE void common(Out shared, In x, const double *w, Size ld, Size columns, Size b)
{
    ALIGNED uint64_t bytes[BLOCK];
    for (Size i = 0; i < b; i++) shared[i] = 0.0;
    for (Size start = 0; start < columns; start += 31) { /* 31 times 8 fits a byte */
        Size stop = start + 31 < columns ? start + 31 : columns;
        for (Size i = 0; i < b; i++) bytes[i] = 0;
        for (Size c = start; c < stop; c++) {
            In y = x + c * ld;
            uint64_t mask = w ? bits_of(w[c]) : ~0ULL;
            for (Size i = 0; i < b; i++) bytes[i] += counts(bits_of(y[i]) & mask);
        }
        for (Size i = 0; i < b; i++) shared[i] += total(bytes[i]);
    }
}

/* The sizes of a block's sets of bits, of each factor that needs them. */
INLINE int sizes(const Columns *job, Size b)
{
    uint64_t bad = 0;
    for (Size f = 0; f < job->factors; f++) {
        const Size *part = job->parts + 3 * f;
        if (part[0] != TANIMOTO) continue;
        In x = job->rows + part[1] * job->ld;
        for (Size c = 0; c < part[2] - part[1]; c++)
            for (Size i = 0; i < b; i++) bad |= is_packed(x[c * job->ld + i]) ? 0 : 1;
        if (bad) return 0;
        common(job->rows + (job->d + f) * job->ld, x, NULL, job->ld, part[2] - part[1], b);
    }
    return 1;
}

/* A row of `out` for a block of arms, constant * polynomial * exp(-exponent). Returns 0 where the
   kernel must say what is wrong. */
INLINE int entries(const Columns *job, Size a, Size b, Out out)
{
    ALIGNED double D[BLOCK], exponent[BLOCK], polynomial[BLOCK];
    Size ld = job->ld;
    In weights = job->weights;
    uint64_t bad = 0;
    for (Size i = 0; i < b; i++) exponent[i] = 0.0;
    for (Size i = 0; i < b; i++) polynomial[i] = 1.0;
    for (Size f = 0; f < job->factors; f++) {
        Size kind = job->parts[3 * f], start = job->parts[3 * f + 1];
        Size columns = job->parts[3 * f + 2] - start;
        In x = job->rows + start * ld, w = job->W + a * job->d + start;
        if (kind <= MATERN_5) {
            squared_distances(D, x, w, weights, ld, columns, b);
            for (Size i = 0; i < b; i++) bad |= D[i] <= LARGEST ? 0 : 1;
        }
        if (kind == RBF)
            for (Size i = 0; i < b; i++) exponent[i] += 0.5 * D[i];
        else if (kind == MATERN_1)
            for (Size i = 0; i < b; i++) exponent[i] += sqrt(D[i]);
        else if (kind == MATERN_3)
            for (Size i = 0; i < b; i++) {
                double r = sqrt(3.0 * D[i]);
                exponent[i] += r;
                polynomial[i] *= 1.0 + r;
            }
        else if (kind == MATERN_5)
            for (Size i = 0; i < b; i++) {
                double square = 5.0 * D[i], r = sqrt(square);
                exponent[i] += r;
                polynomial[i] *= 1.0 + (r + square * (1.0 / 3.0));
            }
        else if (kind == HAMMING)
            for (Size c = 0; c < columns; c++) {
                In y = x + c * ld;
                double v = w[c], s = weights[c];
                for (Size i = 0; i < b; i++) exponent[i] += y[i] != v ? s : 0.0;
            }
        else {
            In size = job->rows + (job->d + f) * ld;
            double own = 0.0;
            for (Size c = 0; c < columns; c++) {
                if (!is_packed(w[c])) return 0;
                own += total(counts(bits_of(w[c])));
            }
            common(D, x, w, ld, columns, b);
            for (Size i = 0; i < b; i++) {
                double either = size[i] + own - D[i];
                polynomial[i] *= either > 0.0 ? D[i] / either : 1.0;
            }
        }
        weights += columns;
    }
    for (Size i = 0; i < b; i++) {
        double e = exp_of(-exponent[i]);
        /* A polynomial may overflow where e is 0. */
        out[i] = job->constant * (e > 0.0 ? polynomial[i] * e : 0.0);
    }
    return !bad;
}

CLONES static int fill(const Columns *job)
{
    Size d = job->d;
    for (Size start = 0; start < job->n; start += job->block) {
        Size b = job->n - start < job->block ? job->n - start : job->block;
        if (job->single) turn_single(job->rows, (const float *)job->X + start * d, d, job->ld, b);
        else turn_double(job->rows, (const double *)job->X + start * d, d, job->ld, b);
        if (!sizes(job, b)) return 0;
        for (Size a = 0; a < job->j; a++)
            if (!entries(job, a, b, job->out + a * job->far + start)) return 0;
    }
    return 1;
}

/* ---- step, peak, reach ----------------------------------------------------------------------- */

typedef struct {
    Size n, p, m, k, ld;
    const double *ahead, *corner, *G, *surprise;
    double *Z, *sums; /* sums: (m - p + k, FAR) */
    Out mean, variance;
} Step;

INLINE void add(Out sum, In z, double w, Size b)
{
    for (Size i = 0; i < b; i++) sum[i] += w * z[i];
}

INLINE void add_four(Out sum, In z0, Size ld, In w, Size b)
{
    In z1 = z0 + ld, z2 = z1 + ld, z3 = z2 + ld;
    double w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    for (Size i = 0; i < b; i++)
        sum[i] += (w0 * z0[i] + w1 * z1[i]) + (w2 * z2[i] + w3 * z3[i]);
}

INLINE void add_four_to_two(Out sum, Out other, In z0, Size ld, In w, In v, Size b)
{
    In z1 = z0 + ld, z2 = z1 + ld, z3 = z2 + ld;
    double w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
    double v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
    for (Size i = 0; i < b; i++) {
        sum[i] += (w0 * z0[i] + w1 * z1[i]) + (w2 * z2[i] + w3 * z3[i]);
        other[i] += (v0 * z0[i] + v1 * z1[i]) + (v2 * z2[i] + v3 * z3[i]);
    }
}

/* Weights of the old coordinates in sum a: those of the new coordinates, then those of H. */
INLINE const double *weights_of(const Step *job, Size a)
{
    Size r = job->m - job->p;
    return a < r ? job->ahead + a * job->p : job->G + (a - r) * job->m;
}

CLONES static void bring(const Step *job)
{
    Size p = job->p, m = job->m, r = m - p, k = job->k, ld = job->ld, c;
    double *sums = job->sums, *H = sums + r * FAR;
    for (Size start = 0; start < job->n; start += FAR) {
        Size b = job->n - start < FAR ? job->n - start : FAR;
        double *Z = job->Z + start;
        Out mean = job->mean + start, variance = job->variance + start;
        for (Size a = 0; a < r + k; a++) memset(sums + a * FAR, 0, b * sizeof(double));
        /* Z is read once: all sums take their part of four rows while these are in cache. */
        for (c = 0; c + 4 <= p; c += 4) {
            const double *z = Z + c * ld;
            Size a = 0;
            for (; a + 2 <= r + k; a += 2)
                add_four_to_two(sums + a * FAR, sums + (a + 1) * FAR, z, ld,
                                weights_of(job, a) + c, weights_of(job, a + 1) + c, b);
            if (a < r + k) add_four(sums + a * FAR, z, ld, weights_of(job, a) + c, b);
        }
        for (; c < p; c++)
            for (Size a = 0; a < r + k; a++)
                add(sums + a * FAR, Z + c * ld, weights_of(job, a)[c], b);
        for (Size a = 0; a < r; a++) { /* forward substitution */
            const double *w = job->corner + a * r;
            Out z = Z + (p + a) * ld;
            double *sum = sums + a * FAR, pivot = w[a];
            for (Size e = 0; e < a; e++) add(sum, Z + (p + e) * ld, w[e], b);
            for (Size i = 0; i < b; i++) z[i] = (z[i] - sum[i]) / pivot;
            for (Size e = 0; e < k; e++) add(H + e * FAR, z, job->G[e * m + p + a], b);
        }
        for (Size a = 0; a < k; a++) {
            In h = H + a * FAR;
            double w = job->surprise[a];
            for (Size i = 0; i < b; i++) {
                mean[i] += w * h[i];
                variance[i] -= h[i] * h[i];
            }
        }
        for (Size i = 0; i < b; i++) variance[i] = variance[i] < 0.0 ? 0.0 : variance[i];
    }
}

CLONES static Size highest(In mean, In variance, const unsigned char *shut, Size n, double beta,
                           double offset, double *value, double *second)
{
    ALIGNED double upper[BLOCK], tops[8];
    double best = -HUGE_VAL, next = -HUGE_VAL;
    Size at = -1;
    for (Size start = 0; start < n; start += BLOCK) {
        Size b = n - start < BLOCK ? n - start : BLOCK, eights = b - b % 8;
        for (Size i = 0; i < b; i++) {
            double v = variance[start + i] + offset;
            upper[i] = mean[start + i] + beta * sqrt(v > 0.0 ? v : 0.0);
        }
        if (shut)
            for (Size i = 0; i < b; i++) upper[i] = shut[start + i] ? -HUGE_VAL : upper[i];
        for (int l = 0; l < 8; l++) tops[l] = -HUGE_VAL;
        for (Size i = 0; i < eights; i += 8)
            for (int l = 0; l < 8; l++) tops[l] = upper[i + l] > tops[l] ? upper[i + l] : tops[l];
        for (Size i = eights; i < b; i++) tops[0] = upper[i] > tops[0] ? upper[i] : tops[0];
        for (int l = 1; l < 8; l++) tops[0] = tops[l] > tops[0] ? tops[l] : tops[0];
        if (tops[0] > best) {
            next = best > next ? best : next;
            best = tops[0];
            for (at = start; upper[at - start] != best;) at++;
            upper[at - start] = -HUGE_VAL;
            for (Size i = 0; i < b; i++) next = upper[i] > next ? upper[i] : next;
        } else
            next = tops[0] > next ? tops[0] : next;
    }
    *value = best;
    *second = next;
    return at;
}

CLONES static Size reaching(In mean, In variance, const unsigned char *shut, Size n, In need,
                            Size steps, double scale, Size *RESTRICT places)
{
    ALIGNED int32_t reaches[BLOCK];
    double last = (double)(steps - 1);
    Size found = 0;
    for (Size start = 0; start < n; start += BLOCK) {
        Size b = n - start < BLOCK ? n - start : BLOCK;
        int32_t any = 0;
        for (Size i = 0; i < b; i++) {
            double step = variance[start + i] * scale;
            step = step > 0.0 ? step : 0.0;
            step = step < last ? step : last;
            reaches[i] = mean[start + i] >= need[(int32_t)step];
            any |= reaches[i];
        }
        for (Size i = 0; any && i < b; i++)
            if (reaches[i] && !(shut && shut[start + i])) places[found++] = start + i;
    }
    return found;
}

/* ---- for Python ------------------------------------------------------------------------------ */

typedef struct { /* the buffers that a call holds */
    Py_buffer views[8];
    int count;
} Held;

enum { READ = 0, WRITE = 1, SPACED = 2 }; /* SPACED: rows may be further apart than they are long */
enum { VECTOR = -2, ANY = -1 };           /* in place of a number of rows; of rows or columns */

static PyObject *give_back(Held *held, PyObject *result)
{
    while (held->count) PyBuffer_Release(&held->views[--held->count]);
    return result;
}

/* An array with items of one of these formats and of this shape, its rows contiguous; NULL, and an
   exception, if it is none. */
static Py_buffer *hold(Held *held, PyObject *array, const char *name, const char *formats,
                       int how, Size rows, Size columns)
{
    Py_buffer *view = &held->views[held->count];
    int flags = PyBUF_STRIDES | PyBUF_FORMAT | (how & WRITE ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array, view, flags)) return NULL;
    held->count++;
    const char *format = view->format ? view->format : "B";
    if (!format[0] || format[1] || !strchr(formats, format[0])) {
        PyErr_Format(PyExc_TypeError, "%s must have items of format %s, got %s", name, formats,
                     format);
        return NULL;
    }
    int axes = rows == VECTOR ? 1 : 2;
    if (view->ndim != axes || (rows >= 0 && view->shape[0] != rows) ||
        (columns >= 0 && view->shape[axes - 1] != columns)) {
        PyErr_Format(PyExc_ValueError, "%s must have %d axes, the last of %zd and one before of %zd "
                     "(negative: any); got %d axes, the last of %zd", name, axes, columns, rows,
                     view->ndim, view->ndim ? view->shape[view->ndim - 1] : 0);
        return NULL;
    }
    Size high = axes == 2 ? view->shape[0] : 1, wide = view->shape[axes - 1], size = view->itemsize;
    Size apart = high > 1 ? view->strides[0] : wide * size;
    if (high && wide && ((wide > 1 && view->strides[axes - 1] != size) || apart < wide * size ||
                         (apart > wide * size && !(how & SPACED)) || apart % size ||
                         (uintptr_t)view->buf % size)) {
        PyErr_Format(PyExc_ValueError, "%s must be contiguous and aligned", name);
        return NULL;
    }
    return view;
}

static Size apart(const Py_buffer *view) /* of the rows of a matrix that is held */
{
    return view->shape[0] > 1 ? view->strides[0] / view->itemsize : view->shape[1];
}

static int is_count(Size count, Size expected)
{
    if (count != expected)
        PyErr_Format(PyExc_TypeError, "takes %zd arguments, got %zd", expected, count);
    return count == expected;
}

static int number(PyObject *from, double *to)
{
    *to = PyFloat_AsDouble(from);
    return *to != -1.0 || !PyErr_Occurred();
}

static int whole(PyObject *from, Size *to)
{
    *to = PyLong_AsSsize_t(from);
    return *to != -1 || !PyErr_Occurred();
}

static PyObject *refuse(Held *held, const char *message)
{
    PyErr_SetString(PyExc_ValueError, message);
    return give_back(held, NULL);
}

/* Loops over so many numbers, without the interpreter where they are many. */
#define LOOPS(numbers, loops)                                                                      \
    do {                                                                                           \
        PyThreadState *state = (numbers) >= ALONE ? PyEval_SaveThread() : NULL;                    \
        loops;                                                                                     \
        if (state) PyEval_RestoreThread(state);                                                    \
    } while (0)

#define INTP sizeof(Size) == sizeof(long) ? "l" : "q" /* the format of numpy.intp */

static PyObject *columns(PyObject *module, PyObject *const *args, Size count)
{
    Held held;
    Columns job;
    Py_buffer *out, *X, *W, *parts, *weights;
    Size used = 0;
    int fine;
    held.count = 0;
    if (!is_count(count, 6) || !number(args[5], &job.constant)) return NULL;
    if (!(X = hold(&held, args[1], "X", "df", READ, ANY, ANY)) ||
        !(W = hold(&held, args[2], "W", "d", READ, ANY, X->shape[1])) ||
        !(out = hold(&held, args[0], "out", "d", WRITE | SPACED, W->shape[0], X->shape[0])) ||
        !(parts = hold(&held, args[3], "parts", INTP, READ, ANY, 3)) ||
        !(weights = hold(&held, args[4], "weights", "d", READ, VECTOR, ANY)))
        return give_back(&held, NULL);
    job.n = X->shape[0];
    job.d = X->shape[1];
    job.j = W->shape[0];
    job.factors = parts->shape[0];
    job.far = apart(out);
    job.X = X->buf;
    job.single = X->itemsize == 4;
    job.parts = parts->buf;
    job.W = W->buf;
    job.weights = weights->buf;
    job.out = out->buf;
    for (Size f = 0; f < job.factors; f++) {
        const Size *part = job.parts + 3 * f;
        if (part[0] < 0 || part[0] >= KINDS || part[1] < 0 || part[2] < part[1] || part[2] > job.d)
            return refuse(&held, "parts must be of kinds that there are and of columns of X");
        used += part[2] - part[1];
    }
    if (used != weights->shape[0])
        return refuse(&held, "weights must be as many as the columns of all parts");
    for (job.block = BLOCK; job.block > 16 && job.block * job.d > MOST_NUMBERS;) job.block /= 2;
    job.ld = job.block + 8; /* no power of two: columns would share their places in a cache */
    void *memory = NULL;
    if (job.d + job.factors < PY_SSIZE_T_MAX / (Size)sizeof(double) / job.ld - 1)
        memory = malloc((job.d + job.factors + 1) * job.ld * sizeof(double));
    if (!memory) {
        PyErr_NoMemory();
        return give_back(&held, NULL);
    }
    job.rows = (double *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    LOOPS(job.n * job.j, fine = fill(&job));
    free(memory);
    return give_back(&held, PyBool_FromLong(fine));
}

static PyObject *step(PyObject *module, PyObject *const *args, Size count)
{
    Held held;
    Step job;
    Py_buffer *Z, *ahead, *corner, *G, *surprise, *mean, *variance;
    ALIGNED double few[2 * FAR];
    held.count = 0;
    if (!is_count(count, 9) || !whole(args[1], &job.p) || !whole(args[2], &job.m)) return NULL;
    if (!(Z = hold(&held, args[0], "Z", "d", WRITE | SPACED, ANY, ANY)))
        return give_back(&held, NULL);
    if (job.p < 0 || job.m < job.p || job.m > Z->shape[0])
        return refuse(&held, "p must not be negative, m not below p, and Z must have m rows");
    Size r = job.m - job.p;
    job.n = Z->shape[1];
    job.ld = apart(Z);
    job.Z = Z->buf;
    job.ahead = job.corner = NULL;
    if (r) {
        if (!(ahead = hold(&held, args[3], "ahead", "d", READ, r, job.p)) ||
            !(corner = hold(&held, args[4], "corner", "d", READ, r, r)))
            return give_back(&held, NULL);
        job.ahead = ahead->buf;
        job.corner = corner->buf;
    }
    if (!(G = hold(&held, args[5], "G", "d", READ, ANY, job.m)) ||
        !(surprise = hold(&held, args[6], "surprise", "d", READ, VECTOR, G->shape[0])) ||
        !(mean = hold(&held, args[7], "mean", "d", WRITE, VECTOR, job.n)) ||
        !(variance = hold(&held, args[8], "variance", "d", WRITE, VECTOR, job.n)))
        return give_back(&held, NULL);
    job.k = G->shape[0];
    job.G = G->buf;
    job.surprise = surprise->buf;
    job.mean = mean->buf;
    job.variance = variance->buf;
    job.sums = r + job.k <= 2 ? few : malloc((r + job.k) * FAR * sizeof(double));
    if (!job.sums) {
        PyErr_NoMemory();
        return give_back(&held, NULL);
    }
    LOOPS(job.n * (job.m + 1), bring(&job));
    if (job.sums != few) free(job.sums);
    give_back(&held, NULL);
    Py_RETURN_NONE;
}

/* The first three arguments of peak and reach: mean, variance, and shut or None. */
static int hold_arms(Held *held, PyObject *const *args, const Py_buffer **mean,
                     const Py_buffer **variance, const unsigned char **shut)
{
    const Py_buffer *given;
    *shut = NULL;
    if (!(*mean = hold(held, args[0], "mean", "d", READ, VECTOR, ANY)) ||
        !(*variance = hold(held, args[1], "variance", "d", READ, VECTOR, (*mean)->shape[0])))
        return 0;
    if (args[2] == Py_None) return 1;
    if (!(given = hold(held, args[2], "shut", "?B", READ, VECTOR, (*mean)->shape[0]))) return 0;
    *shut = given->buf;
    return 1;
}

static PyObject *peak(PyObject *module, PyObject *const *args, Size count)
{
    Held held;
    const Py_buffer *mean, *variance;
    const unsigned char *shut;
    double beta, offset, value, second;
    Size at;
    held.count = 0;
    if (!is_count(count, 5) || !number(args[3], &beta) || !number(args[4], &offset)) return NULL;
    if (!hold_arms(&held, args, &mean, &variance, &shut)) return give_back(&held, NULL);
    Size n = mean->shape[0];
    LOOPS(n, at = highest(mean->buf, variance->buf, shut, n, beta, offset, &value, &second));
    return give_back(&held, Py_BuildValue("(ndd)", at, value, second));
}

static PyObject *reach(PyObject *module, PyObject *const *args, Size count)
{
    Held held;
    const Py_buffer *mean, *variance, *need, *places;
    const unsigned char *shut;
    double scale;
    Size found;
    held.count = 0;
    if (!is_count(count, 6) || !number(args[4], &scale)) return NULL;
    if (!hold_arms(&held, args, &mean, &variance, &shut) ||
        !(need = hold(&held, args[3], "need", "d", READ, VECTOR, ANY)) ||
        !(places = hold(&held, args[5], "places", INTP, WRITE, VECTOR, mean->shape[0])))
        return give_back(&held, NULL);
    Size n = mean->shape[0], steps = need->shape[0];
    if (steps < 1 || steps > INT32_MAX) return refuse(&held, "need must have a number or more");
    LOOPS(n, found = reaching(mean->buf, variance->buf, shut, n, need->buf, steps, scale,
                              places->buf));
    return give_back(&held, PyLong_FromSsize_t(found));
}

#define FUNCTION(name) {#name, (PyCFunction)(void (*)(void))name, METH_FASTCALL, NULL}

static PyMethodDef functions[] = {
    FUNCTION(columns), FUNCTION(step), FUNCTION(peak), FUNCTION(reach), {NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_sweep", .m_methods = functions, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__sweep(void) { return PyModuleDef_Init(&definition); }
