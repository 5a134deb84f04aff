/*
 * weights.h - computes the size of a model's weights, and the cost of its computation.
 */
#ifndef KVT_WEIGHTS_H
#define KVT_WEIGHTS_H

#include "command/model.h"

/* Sets parameters, active, weight_bytes and pair_flops of *m from the part of a file that describes
 * text; 0: it has too little data. `root` is the whole file, which says how the weights are
 * quantized. */
void kvt_weights_read(const json_t *root, const json_t *text, struct kvt_model *m);

/* Returns the bytes of all *.safetensors in a model's folder, or in the folder of its config.json;
 * 0: there are none. */
uint64_t kvt_weights_files(const char *path);

#endif
