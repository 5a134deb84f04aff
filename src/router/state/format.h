/*
 * format.h - a snapshot as a stream of bytes: written to a descriptor and read from one.
 *
 * 	header   64 bytes: magic, version, order of bytes, time, random id, kvway's version,
 * 	         its checksum
 * 	frame    24 bytes: kind, length, records, checksum; then `length` bytes of records
 * 	         of that kind
 * 	...
 * 	END      a frame of kind KVW_KEPT_END: the numbers of frames, bytes and records before it
 *
 * A record is two bytes of length and its bytes (include/kvway/keep.h). A section is the run of
 * frames of one kind. Each frame's checksum (XXH3, 64 bits) begins with that of the frame before,
 * and the first with the header's, so frames that are exchanged, left out or from another snapshot
 * are found like flipped bits; END shows that nothing is missing. Numbers are in the byte order of
 * the writing machine; a machine with another order refuses the snapshot.
 *
 * Writing and reading do not seek, so a pipe or a socket can be used like a file. The writer needs
 * 64 KiB, the reader as much. Checksums find damage, not malice: records may hold anything.
 *
 * Threads: a writer or a reader belongs to one.
 */
#ifndef KVW_STATE_FORMAT_H
#define KVW_STATE_FORMAT_H

#include "kvway/keep.h"

#define KVW_STATE_VERSION   1
#define KVW_STATE_FRAME     65536 /* most bytes of records in a frame */
#define KVW_STATE_WHY       160   /* bytes of a message */
#define KVW_STATE_PROGRAM   24    /* room for the version of the kvway that wrote the snapshot */
#define KVW_STATE_END_BYTES (24 + 24) /* that END takes */

/* How much a section has, that is, the records of one kind. */
struct kvw_state_section {
	uint64_t frames, records, bytes; /* bytes count the heads of frames, too */
};

struct kvw_state_summary {
	uint32_t version;
	char program[KVW_STATE_PROGRAM]; /* ends with a NUL */
	int64_t written_ms;              /* when writing began, in ms since 1970 */
	uint64_t bytes;                  /* number of bytes that were read or written */
	struct kvw_state_section sections[KVW_KEPT_KINDS];
};

struct kvw_state_writer {
	int fd;
	uint64_t most;  /* most bytes; beyond that nothing more is written */
	uint64_t chain; /* checksum of the frame that was written last */
	uint64_t frames, records;
	enum kvw_keep_kind kind; /* kind of the records in the buffer */
	uint32_t used, in_frame;
	int error; /* errno of the write that failed; 0: none has failed */
	struct kvw_state_summary summary;
	/* head and records of the frame that is being filled */
	uint8_t frame[24 + KVW_STATE_FRAME];
};

/* Writes the header. id: a random number that no other snapshot is likely to have. KVW_EIO: errno
 * is in writer->error; KVW_ELIMIT: the snapshot would have more than `most` bytes. */
enum kvw_err kvw_state_write_begin(struct kvw_state_writer *writer, int fd, uint64_t most,
	int64_t now_ms, uint64_t id) KVW_MUST_CHECK;
/* Writes a record; the function can be used as `put` in struct kvw_keep_out, with the writer as
 * `arg`. Errors are those of kvw_state_write_begin. */
enum kvw_err kvw_state_write(
	void *writer, enum kvw_keep_kind kind, const void *record, size_t len) KVW_MUST_CHECK;
/* Writes the frame END. The caller syncs and closes the descriptor. */
enum kvw_err kvw_state_write_end(struct kvw_state_writer *writer) KVW_MUST_CHECK;

/* The begin of a frame, from which reading can continue. */
struct kvw_state_place {
	/* numbers before that place; bytes 0: there is no place */
	uint64_t bytes, chain, frames, records;
};

struct kvw_state_reader {
	int fd;
	uint64_t most;
	uint64_t chain;
	uint64_t frames, records;
	bool ours;  /* the stream begins as snapshots of kvway do, of any version */
	bool ended; /* END was read, and nothing followed it */
	enum kvw_keep_kind kind;
	/* of the frame that is being read: its length, and the position in it */
	uint32_t length, at;
	uint32_t left;       /* records in it */
	struct kvw_state_place place; /* where it begins */
	struct kvw_state_summary summary;
	char why[KVW_STATE_WHY];
	uint8_t frame[24 + KVW_STATE_FRAME];
};

/* Reads the header. KVW_EPROTO: it is not the header of a snapshot that this version can read on
 * this machine, and reader->why has the reason; KVW_ELIMIT: there are more than `most` bytes (here
 * or later); KVW_EIO. */
enum kvw_err kvw_state_read_begin(
	struct kvw_state_reader *reader, int fd, uint64_t most) KVW_MUST_CHECK;
/* Reads the next record, which is valid until the next call. KVW_ECLOSED: there are no more, and
 * the snapshot was undamaged. Other errors are those of kvw_state_read_begin. */
enum kvw_err kvw_state_read(struct kvw_state_reader *reader, enum kvw_keep_kind *kind,
	const uint8_t **record, size_t *len) KVW_MUST_CHECK;

/* Continues at a place that this reader has passed, on a descriptor that can seek. The counts of
 * sections continue, too. KVW_EIO. */
enum kvw_err kvw_state_read_at(
	struct kvw_state_reader *reader, const struct kvw_state_place *place) KVW_MUST_CHECK;

/* Reads to the end. KVW_OK: the snapshot is undamaged; reader->summary says what it contains. */
enum kvw_err kvw_state_read_all(
	struct kvw_state_reader *reader, int fd, uint64_t most) KVW_MUST_CHECK;

/* Returns a name such as "prefix tree: nodes"; NULL: there is no such kind. */
const char *kvw_state_kind_name(enum kvw_keep_kind kind);

#endif
