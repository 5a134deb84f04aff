/*
 * key_file.h - reads the file of master keys.
 *
 * The file has lines `ID: KEY`. The id is a number from 1 to 4294967295, the key 32 bytes as 64 hex
 * digits or 44 characters of base64; '#' begins a comment. The key with the highest id seals, every
 * key opens. The file must be a regular one of this user or root that no other user may read or
 * write; kvtier logs when its group may read it (as with secrets of Kubernetes).
 *
 *     printf '1: %s\n' "$(openssl rand -hex 32)" > keys && chmod 600 keys
 */
#ifndef KVT_KEY_FILE_H
#define KVT_KEY_FILE_H

#include "chunk/note.h"
#include "protect/secrets.h"

#define KVT_KEY_FILE_MOST 1024 /* keys */

/* A master key. */
struct kvt_master {
	uint32_t id;
	uint8_t *key; /* points into the secrets of its kvt_masters */
};

struct kvt_masters {
	struct kvt_master *items; /* owned; ascending by id */
	size_t count;             /* at least 1 */
};

/* If there is any mistake, the whole file is refused, because with a missing key some chunks could
 * not be read. KVT_EIO: the file cannot be read. KVT_EINVAL. With both, *report has lines (free
 * with kvt_text_free). Keys are never printed. */
enum kvt_status kvt_key_file_read(const char *path, const struct kvt_surroundings *s,
	struct kvt_secrets *secrets, struct kvt_masters *out, char **report) KVT_MUST_CHECK;
void kvt_masters_finish(struct kvt_masters *m, struct kvt_secrets *secrets);

/* NULL: no such key. */
const uint8_t *kvt_masters_find(const struct kvt_masters *m, uint32_t id);

static inline const struct kvt_master *kvt_masters_newest(const struct kvt_masters *m)
{
	return &m->items[m->count - 1];
}

#endif
