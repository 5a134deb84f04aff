/*
 * weights.h - how large a model's weights are, and what its computing costs.
 */
#ifndef KVT_WEIGHTS_H
#define KVT_WEIGHTS_H

#include "command/model.h"

/* Sets parameters, active, weight_bytes and pair_flops of *m by a file's text part; 0: it says too little. `root`: the
 * whole file, which says how weights are quantized. */
void kvt_weights_read(const json_t *root, const json_t *text, struct kvt_model *m);

/* Bytes of the *.safetensors in a model's folder, or in that of its config.json. 0: there are none. */
uint64_t kvt_weights_files(const char *path);

#endif
