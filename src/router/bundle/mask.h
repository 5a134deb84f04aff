/*
 * mask.h - takes secrets out of texts that leave the machine.
 *
 * Two nets, since neither is enough alone: the values that are known to be secret (keys of type
 * SECRET, the key of the admin address) are replaced wherever they stand, and so is whatever stands
 * where secrets usually do: user and password of a URL, its query, bearer tokens.
 *
 * Limits: a secret in the path of a URL, or a text that a user has put where no secret belongs, is
 * not found.
 */
#ifndef KVW_MASK_H
#define KVW_MASK_H

#include <stddef.h>

#include "config/config.h"
#include "kvway/err.h"

#define KVW_MASKED "(secret)"

/* Known secrets. Zeroed: none. */
struct kvw_mask {
	char **secrets; /* owned, as are the texts */
	size_t count;
};

/* Adds a copy of a secret; NULL and very short texts are not added, for they would mask words. */
enum kvw_err kvw_mask_add(struct kvw_mask *mask, const char *secret) KVW_MUST_CHECK;
/* Adds all secrets of a configuration. */
enum kvw_err kvw_mask_add_config(
	struct kvw_mask *mask, const struct kvw_config *config) KVW_MUST_CHECK;
void kvw_mask_finish(struct kvw_mask *mask);

/* Makes a copy of the text, which may have any bytes, without secrets. The caller frees *out. */
enum kvw_err kvw_mask_text(const struct kvw_mask *mask, const char *text, size_t len, char **out,
	size_t *out_len) KVW_MUST_CHECK;

#endif
