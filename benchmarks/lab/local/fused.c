/* What the lab's engine does between two matrix products, each in one pass. Matrices are float32, row after row. */

#include <math.h>

static inline float root_mean_square(const float *x, long size, float epsilon) {
    float sum = 0.0f;
    for (long i = 0; i < size; i++) sum += x[i] * x[i];
    return sqrtf(sum / (float)size + epsilon);
}

/* RMSNorm of each row. */
void normed(const float *x, const float *weight, float epsilon, long rows, long size, float *out) {
    for (long row = 0; row < rows; row++, x += size, out += size) {
        float scale = 1.0f / root_mean_square(x, size, epsilon);
        for (long i = 0; i < size; i++) out[i] = x[i] * scale * weight[i];
    }
}

/* silu(gate) * up of each row, which has gate and up one after the other. */
void gated(const float *x, long rows, long size, float *out) {
    for (long row = 0; row < rows; row++, x += 2 * size, out += size)
        for (long i = 0; i < size; i++) out[i] = x[size + i] * x[i] / (1.0f + expf(-x[i]));
}

/* The norm of one head, if there is one, and its rotation by position: halves are pairs, as Qwen3 and Llama have them. */
static inline void turned(const float *x, const float *weight, float epsilon, const float *cos, const float *sin,
                          long size, float *out) {
    long half = size / 2;
    float normal[size];
    float scale = weight ? 1.0f / root_mean_square(x, size, epsilon) : 1.0f;
    for (long i = 0; i < size; i++) normal[i] = weight ? x[i] * scale * weight[i] : x[i];
    for (long i = 0; i < half; i++) {
        out[i] = normal[i] * cos[i] - normal[half + i] * sin[i];
        out[half + i] = normal[half + i] * cos[i] + normal[i] * sin[i];
    }
}

static inline void weighted(const float *query, const float *keys, const float *values, long seen, long size,
                            float *weights, float *out) {
    float scale = 1.0f / sqrtf((float)size), largest, sum = 0.0f;
    for (long at = 0; at < seen; at++) {
        float product = 0.0f;
        for (long i = 0; i < size; i++) product += query[i] * keys[at * size + i];
        weights[at] = product * scale;
    }
    largest = weights[0];
    for (long at = 1; at < seen; at++) largest = fmaxf(largest, weights[at]);
    for (long at = 0; at < seen; at++) weights[at] = expf(weights[at] - largest);
    for (long at = 0; at < seen; at++) sum += weights[at];
    float found[size];
    for (long i = 0; i < size; i++) found[i] = 0.0f;
    for (long at = 0; at < seen; at++)
        for (long i = 0; i < size; i++) found[i] += weights[at] * values[at * size + i];
    for (long i = 0; i < size; i++) out[i] = found[i] / sum;
}

/* Attention of new tokens to what their row's cache holds, themselves included, which it takes in. A row's new tokens
   begin at its `start`. The cache has `room` tokens for each row and key head. `size` is known to the compiler where it is
   inlined with a constant. */
static inline void attended_by(const float *parts, const float *query_norm, const float *key_norm, float epsilon,
                               const float *cos, const float *sin, const long *starts, long rows, long tokens, long heads,
                               long groups, long size, long room, float *keys, float *values, float *out) {
    float weights[room], query[size];
    for (long row = 0; row < rows; row++) {
        for (long token = 0; token < tokens; token++) {
            long at = starts[row] + token;
            const float *key = parts + heads * size, *value = key + groups * size;
            for (long group = 0; group < groups; group++) {
                long place = ((row * groups + group) * room + at) * size;
                turned(key + group * size, key_norm, epsilon, cos, sin, size, keys + place);
                for (long i = 0; i < size; i++) values[place + i] = value[group * size + i];
            }
            for (long head = 0; head < heads; head++) {
                long first = (row * groups + head / (heads / groups)) * room * size;
                turned(parts + head * size, query_norm, epsilon, cos, sin, size, query);
                weighted(query, keys + first, values + first, at + 1, size, weights, out + head * size);
            }
            parts += (heads + 2 * groups) * size, out += heads * size, cos += size / 2, sin += size / 2;
        }
    }
}

void attended(const float *parts, const float *query_norm, const float *key_norm, float epsilon, const float *cos,
              const float *sin, const long *starts, long rows, long tokens, long heads, long groups, long size, long room,
              float *keys, float *values, float *out) {
    if (size == 32)
        attended_by(parts, query_norm, key_norm, epsilon, cos, sin, starts, rows, tokens, heads, groups, 32, room, keys,
                    values, out);
    else if (size == 64)
        attended_by(parts, query_norm, key_norm, epsilon, cos, sin, starts, rows, tokens, heads, groups, 64, room, keys,
                    values, out);
    else
        attended_by(parts, query_norm, key_norm, epsilon, cos, sin, starts, rows, tokens, heads, groups, size, room, keys,
                    values, out);
}

/* A token of each row, by inverting its distribution at a uniform number, and its log-prob. */
void drawn(const float *logits, const float *draws, long rows, long size, long *ids, float *logprobs) {
    float odds[size];
    for (long row = 0; row < rows; row++, logits += size) {
        float largest = logits[0], total = 0.0f, before = 0.0f;
        for (long i = 1; i < size; i++) largest = fmaxf(largest, logits[i]);
        for (long i = 0; i < size; i++) odds[i] = expf(logits[i] - largest);
        for (long i = 0; i < size; i++) total += odds[i];
        long id = 0;
        while (id < size - 1 && (before += odds[id]) <= draws[row] * total) id++;
        ids[row] = id, logprobs[row] = logits[id] - largest - logf(total);
    }
}
