/*
 * format.h - a snapshot as a stream of bytes: written to a descriptor and read from one.
 *
 * 	header   64 bytes: magic, version, order of bytes, when, random id, kvway's version,
 * 	         its checksum
 * 	frame    24 bytes: kind, length, records, checksum; then `length` bytes of records
 * 	         of that kind
 * 	...
 * 	END      a frame of kind KVW_KEPT_END: how many frames, bytes and records came before
 *
 * A record is two bytes of length and its bytes (include/kvway/keep.h). A section is the run of
 * frames of one kind. Each frame's checksum (XXH3, 64 bits) begins with that of the frame before,
 * and the first with the header's, so frames that are exchanged, left out or from another snapshot
 * are found like flipped bits; END shows that nothing is missing. Numbers are in the byte order of
 * the machine that wrote; another one refuses.
 *
 * Nothing is sought: a pipe or a socket does as well as a file. The writer needs 64 KiB, the reader
 * as much. Checksums find damage, not malice: records may hold anything.
 *
 * Threads: a writer or a reader belongs to one.
 */
#ifndef KVW_STATE_FORMAT_H
#define KVW_STATE_FORMAT_H

#include "kvway/keep.h"

#define KVW_STATE_VERSION   1
#define KVW_STATE_FRAME     65536 /* bytes of records in a frame, at most */
#define KVW_STATE_WHY       160   /* bytes of a message */
#define KVW_STATE_PROGRAM   24    /* bytes of the version of kvway that wrote */
#define KVW_STATE_END_BYTES (24 + 24) /* that END takes */

/* Size of a section: the records of one kind. */
struct kvw_state_section {
	uint64_t frames, records, bytes; /* bytes: with the frames' heads */
};

struct kvw_state_summary {
	uint32_t version;
	char program[KVW_STATE_PROGRAM]; /* ends with a NUL */
	int64_t written_ms;              /* since 1970, as its writer began */
	uint64_t bytes;                  /* of all that was read or written */
	struct kvw_state_section sections[KVW_KEPT_KINDS];
};

struct kvw_state_writer {
	int fd;
	uint64_t most;  /* bytes; with more nothing is written any more */
	uint64_t chain; /* checksum of the last written frame */
	uint64_t frames, records;
	enum kvw_keep_kind kind; /* of what lies in the buffer */
	uint32_t used, in_frame;
	int error; /* errno of the write that failed; 0: none did */
	struct kvw_state_summary summary;
	uint8_t frame[24 + KVW_STATE_FRAME]; /* head and records of the frame that fills */
};

/* Writes the header. id: any number that another snapshot hardly has. KVW_EIO: writer->error is its
 * errno;
 * KVW_ELIMIT: more than `most` bytes. */
enum kvw_err kvw_state_write_begin(struct kvw_state_writer *writer, int fd, uint64_t most,
	int64_t now_ms, uint64_t id) KVW_MUST_CHECK;
/* One record, as the `put` of struct kvw_keep_out with the writer as `arg`. Errors as above. */
enum kvw_err kvw_state_write(
	void *writer, enum kvw_keep_kind kind, const void *record, size_t len) KVW_MUST_CHECK;
/* Writes END. The descriptor is the caller's to sync and close. */
enum kvw_err kvw_state_write_end(struct kvw_state_writer *writer) KVW_MUST_CHECK;

/* The beginning of a frame, at which reading can go on. */
struct kvw_state_place {
	uint64_t bytes, chain, frames, records; /* before it; bytes 0: no place */
};

struct kvw_state_reader {
	int fd;
	uint64_t most;
	uint64_t chain;
	uint64_t frames, records;
	bool ours;  /* it begins as a snapshot of kvway does, of whatever version */
	bool ended; /* END was read, and nothing came after it */
	enum kvw_keep_kind kind;
	uint32_t length, at; /* of the frame that is being read */
	uint32_t left;       /* records in it */
	struct kvw_state_place place; /* where it begins */
	struct kvw_state_summary summary;
	char why[KVW_STATE_WHY];
	uint8_t frame[24 + KVW_STATE_FRAME];
};

/* Reads the header. KVW_EPROTO: it is not that of a snapshot which this version reads on this
 * machine, and reader->why says what is wrong; KVW_ELIMIT: there are more than `most` bytes (here
 * or later); KVW_EIO. */
enum kvw_err kvw_state_read_begin(
	struct kvw_state_reader *reader, int fd, uint64_t most) KVW_MUST_CHECK;
/* The next record; it stays until the next call. KVW_ECLOSED: that was the last one, and all was
 * whole. Other errors as above. */
enum kvw_err kvw_state_read(struct kvw_state_reader *reader, enum kvw_keep_kind *kind,
	const uint8_t **record, size_t *len) KVW_MUST_CHECK;

/* Goes on at a place that this reader has passed, of a descriptor that can seek.
 * Counts of sections go on. KVW_EIO. */
enum kvw_err kvw_state_read_at(
	struct kvw_state_reader *reader, const struct kvw_state_place *place) KVW_MUST_CHECK;

/* Reads to the end. KVW_OK: the snapshot is whole; reader->summary has its contents. */
enum kvw_err kvw_state_read_all(
	struct kvw_state_reader *reader, int fd, uint64_t most) KVW_MUST_CHECK;

/* "prefix tree: nodes" and the like; NULL: there is no such kind. */
const char *kvw_state_kind_name(enum kvw_keep_kind kind);

#endif
