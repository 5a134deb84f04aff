/*
 * files.h - what tests of I/O layers share: a folder of their own, aligned memory, and waiting.
 */
#ifndef KVT_TEST_FILES_H
#define KVT_TEST_FILES_H

#include "kvtier/kvtier_io.h"

#define SECOND_NS INT64_C(1000000000)

/* A new empty folder below `base` (NULL: $TMPDIR or /tmp); removed with all files by folder_end. */
struct folder {
	char path[256];
};
void folder_begin(struct folder *f, const char *base);
void folder_end(struct folder *f);

/* Aligned memory filled by a seed. Free with free(). */
unsigned char *filled(size_t bytes, uint32_t seed);
void fill(unsigned char *to, size_t bytes, uint32_t seed);

struct kvt_io *layer_open(
	struct kvt_io_layer layer, const char *folder, const struct kvt_io_options *options);
struct kvt_file *must_open(struct kvt_io *io, const char *name, enum kvt_open_how how, bool direct);

/* One operation on one buffer, until it is back; its result. */
int64_t once(struct kvt_io *io, enum kvt_io_kind kind, struct kvt_file *file, uint64_t offset,
	void *bytes, size_t len);

/* Waits until `count` operations are back. */
void reap_all(struct kvt_io *io, size_t count, struct kvt_io_op **out);

#endif
