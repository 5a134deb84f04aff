/*
 * weights.h - the size of a model's weights, and the cost of its computation.
 */
#ifndef KVT_WEIGHTS_H
#define KVT_WEIGHTS_H

#include "command/model.h"

/* Sets parameters, active, weight_bytes and pair_flops of *m by a file's text part; 0: too little data. `root`: the
 * whole file, which has the quantization of the weights. */
void kvt_weights_read(const json_t *root, const json_t *text, struct kvt_model *m);

/* Bytes of the *.safetensors in a model's folder, or in its config.json's folder. 0: none. */
uint64_t kvt_weights_files(const char *path);

#endif
