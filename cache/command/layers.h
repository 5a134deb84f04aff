/*
 * layers.h - finds kind and shape of each layer of a model.
 */
#ifndef KVT_LAYERS_H
#define KVT_LAYERS_H

#include "command/model.h"

/* Sets groups, layers, window, latent and context of *m from the part of a config.json that
 * describes text. */
bool kvt_layers_read(const json_t *text, struct kvt_model *m, char why[KVT_MODEL_WHY]);

#endif
