/*
 * label_selector.h - label selectors of Kubernetes, in the form of `kubectl -l`.
 *
 * Requirements joined by commas, all of which must hold: `key=value`, `key==value`, `key!=value`,
 * `key in (a,b)`, `key notin (a,b)`, `key`, `!key`. `!=` and `notin` hold for an object without the
 * label, as in Kubernetes. Pure functions, nothing on the heap.
 */
#ifndef KVW_LABEL_SELECTOR_H
#define KVW_LABEL_SELECTOR_H

#include <stdbool.h>

#include "kvway/slice.h"

/* Returns the value of a label; its data is NULL if the object has no such label. */
typedef struct kvw_slice kvw_label_fn(const void *arg, struct kvw_slice key);

bool kvw_label_selector_is_valid(struct kvw_slice text);

/* Returns whether an object with these labels is selected. The text must be valid. */
bool kvw_label_selector_matches(struct kvw_slice text, kvw_label_fn *label, const void *arg);

/* Returns whether the text may be the name of a label or an annotation: `app`,
 * `example.com/model`. */
bool kvw_label_key_is_valid(struct kvw_slice text);

#endif
