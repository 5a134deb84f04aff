/* format.c - a snapshot as a stream of bytes: written to a descriptor and read from one. */
#include "state/format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC      "KVWSTATE"
#define BYTE_ORDER UINT32_C(0x01020304)
#define OTHER_SIDE UINT32_C(0x04030201)
#define MOST_AT_ONCE (UINT32_C(1) << 20) /* bytes of one write(2) */

struct header {
	char magic[8];
	uint32_t version;
	uint32_t order;
	uint64_t written_ms;
	uint64_t id;
	char program[KVW_STATE_PROGRAM];
	uint64_t sum; /* of all before it */
};

struct frame {
	uint32_t kind;
	uint32_t length; /* bytes behind it */
	uint32_t records;
	uint32_t zero;
	/* checksum over the rest of the head, the records, and the sum of the frame before */
	uint64_t sum;
};

struct end {
	uint64_t frames, records, bytes;
};

_Static_assert(
	sizeof(struct header) == 64 && sizeof(struct frame) == 24 && sizeof(struct end) == 24,
	"no gaps");
_Static_assert(KVW_KEPT_MOST + 2 <= KVW_STATE_FRAME && KVW_KEPT_MOST <= UINT16_MAX,
	"a record fits a frame");

const char *kvw_state_kind_name(enum kvw_keep_kind kind)
{
	static const char *const names[KVW_KEPT_KINDS] = {
		[KVW_KEPT_WORKER] = "workers",
		[KVW_KEPT_MODEL] = "bytes per token of models",
		[KVW_KEPT_RATE] = "counts of keys, tenants, models",
		[KVW_KEPT_OWNER] = "owners of responses",
		[KVW_KEPT_INSTANCE] = "LMCache: instances",
		[KVW_KEPT_RANK] = "LMCache: ranks",
		[KVW_KEPT_LOCATION] = "LMCache: locations",
		[KVW_KEPT_KEYS] = "LMCache: keys",
		[KVW_KEPT_QUOTA] = "coordinator: quotas",
		[KVW_KEPT_PIN] = "coordinator: pins",
		[KVW_KEPT_SERVER] = "coordinator: servers",
		[KVW_KEPT_CAPACITY] = "coordinator: capacities",
		[KVW_KEPT_TOKENS] = "coordinator: tokens",
		[KVW_KEPT_PLACEMENT] = "coordinator: placements",
		[KVW_KEPT_USAGE] = "usage of keys, tenants, models",
		[KVW_KEPT_TREE] = "prefix tree",
		[KVW_KEPT_NODE] = "prefix tree: nodes",
		[KVW_KEPT_VIEW] = "prefix tree: views of workers",
		[KVW_KEPT_SHARE] = "shares of caches",
		[KVW_KEPT_PLACES] = "table of sessions",
		[KVW_KEPT_SESSION] = "sessions",
	};

	return (unsigned)kind < KVW_KEPT_KINDS ? names[kind] : NULL;
}

/* Computes the checksum of a frame: of its head, without the checksum itself, and its records. */
static uint64_t frame_sum(const uint8_t *frame, size_t length, uint64_t before)
{
	uint64_t head = XXH3_64bits_withSeed(frame, offsetof(struct frame, sum), before);

	return XXH3_64bits_withSeed(frame + sizeof(struct frame), length, head);
}

/* --- writing --- */

static enum kvw_err write_bytes(struct kvw_state_writer *writer, const void *data, size_t len)
{
	const uint8_t *at = data;

	if (writer->error != 0)
		return KVW_EIO;
	/* The frame END must still fit afterwards. */
	if (len > writer->most || writer->summary.bytes > writer->most - len)
		return KVW_ELIMIT;
	writer->summary.bytes += len;
	while (len > 0) {
		ssize_t n = write(writer->fd, at, len < MOST_AT_ONCE ? len : MOST_AT_ONCE);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			writer->error = n < 0 ? errno : EIO;
			return KVW_EIO;
		}
		at += n;
		len -= (size_t)n;
	}
	return KVW_OK;
}

enum kvw_err kvw_state_write_begin(
	struct kvw_state_writer *writer, int fd, uint64_t most, int64_t now_ms, uint64_t id)
{
	struct header header = {.version = KVW_STATE_VERSION, .order = BYTE_ORDER, .id = id};

	memset(writer, 0, offsetof(struct kvw_state_writer, frame));
	writer->fd = fd;
	writer->most = most > KVW_STATE_END_BYTES ? most - KVW_STATE_END_BYTES : 0;
	memcpy(header.magic, MAGIC, sizeof(header.magic));
	header.written_ms = (uint64_t)now_ms;
	(void)snprintf(header.program, sizeof(header.program), "%s", KVW_VERSION);
	header.sum = XXH3_64bits(&header, offsetof(struct header, sum));
	writer->chain = header.sum;
	writer->summary.version = header.version;
	writer->summary.written_ms = now_ms;
	memcpy(writer->summary.program, header.program, sizeof(header.program));
	return write_bytes(writer, &header, sizeof(header));
}

static enum kvw_err flush_frame(struct kvw_state_writer *writer)
{
	struct kvw_state_section *section = &writer->summary.sections[writer->kind];
	struct frame head = {
		.kind = writer->kind, .length = writer->used, .records = writer->in_frame};

	if (writer->used == 0)
		return KVW_OK;
	memcpy(writer->frame, &head, sizeof(head));
	head.sum = frame_sum(writer->frame, writer->used, writer->chain);
	memcpy(writer->frame, &head, sizeof(head));
	writer->chain = head.sum;
	writer->frames++;
	section->frames++;
	section->records += head.records;
	section->bytes += sizeof(head) + head.length;
	writer->used = writer->in_frame = 0;
	return write_bytes(writer, writer->frame, sizeof(head) + head.length);
}

enum kvw_err kvw_state_write(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	struct kvw_state_writer *writer = arg;
	uint16_t size = (uint16_t)len;
	uint8_t *at = NULL;

	if (kind == KVW_KEPT_END || kind >= KVW_KEPT_KINDS || len > KVW_KEPT_MOST)
		return KVW_EINVAL;
	if (kind != writer->kind || writer->used + sizeof(size) + len > KVW_STATE_FRAME) {
		enum kvw_err err = flush_frame(writer);

		if (err != KVW_OK)
			return err;
		writer->kind = kind;
	}
	at = writer->frame + sizeof(struct frame) + writer->used;
	memcpy(at, &size, sizeof(size));
	if (len > 0)
		memcpy(at + sizeof(size), record, len);
	writer->used += (uint32_t)(sizeof(size) + len);
	writer->in_frame++;
	writer->records++;
	return KVW_OK;
}

enum kvw_err kvw_state_write_end(struct kvw_state_writer *writer)
{
	enum kvw_err err = flush_frame(writer);
	struct end end;

	if (err != KVW_OK)
		return err;
	end = (struct end){writer->frames, writer->records, writer->summary.bytes};
	writer->most += KVW_STATE_END_BYTES;
	writer->kind = KVW_KEPT_END;
	memcpy(writer->frame + sizeof(struct frame), &end, sizeof(end));
	writer->used = sizeof(end);
	return flush_frame(writer);
}

/* --- reading --- */

static enum kvw_err refuse_snapshot(
	struct kvw_state_reader *reader, enum kvw_err err, const char *why)
{
	(void)snprintf(reader->why, sizeof(reader->why), "%s", why);
	return err;
}

/* Reads len bytes, or fewer at the end of the stream; *got is how many. */
static enum kvw_err read_bytes(struct kvw_state_reader *reader, void *data, size_t len, size_t *got)
{
	uint8_t *at = data;

	*got = 0;
	while (*got < len) {
		ssize_t n = read(reader->fd, at + *got, len - *got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			(void)snprintf(reader->why, sizeof(reader->why), "cannot read: %s",
				strerror(errno));
			return KVW_EIO;
		}
		if (n == 0)
			break;
		*got += (size_t)n;
	}
	reader->summary.bytes += *got;
	if (reader->summary.bytes > reader->most)
		return refuse_snapshot(reader, KVW_ELIMIT, "more bytes than state.max_bytes");
	return KVW_OK;
}

enum kvw_err kvw_state_read_begin(struct kvw_state_reader *reader, int fd, uint64_t most)
{
	struct header header;
	enum kvw_err err;
	size_t got;

	memset(reader, 0, offsetof(struct kvw_state_reader, frame));
	reader->fd = fd;
	reader->most = most;
	err = read_bytes(reader, &header, sizeof(header), &got);
	if (err != KVW_OK)
		return err;
	if (got < sizeof(header.magic) || memcmp(header.magic, MAGIC, sizeof(header.magic)) != 0)
		return refuse_snapshot(reader, KVW_EPROTO, "not a snapshot of kvway");
	reader->ours = true;
	if (got < sizeof(header))
		return refuse_snapshot(reader, KVW_EPROTO, "ends within the header");
	if (header.order == OTHER_SIDE)
		return refuse_snapshot(
			reader, KVW_EPROTO, "written by a machine of the other byte order");
	if (header.sum != XXH3_64bits(&header, offsetof(struct header, sum)))
		return refuse_snapshot(reader, KVW_EPROTO, "damaged header");
	if (header.order != BYTE_ORDER)
		return refuse_snapshot(reader, KVW_EPROTO, "unknown byte order");
	reader->summary.version = header.version;
	if (header.version != KVW_STATE_VERSION) {
		(void)snprintf(reader->why, sizeof(reader->why),
			"version %u of the format, this kvway reads %d", header.version,
			KVW_STATE_VERSION);
		return KVW_EPROTO;
	}
	memcpy(reader->summary.program, header.program, sizeof(header.program));
	reader->summary.program[sizeof(header.program) - 1] = '\0';
	reader->summary.written_ms = (int64_t)header.written_ms;
	reader->chain = header.sum;
	return KVW_OK;
}

static enum kvw_err refuse_frame(struct kvw_state_reader *reader, const char *what)
{
	(void)snprintf(reader->why, sizeof(reader->why),
		"%s in frame %llu, within the first %llu bytes", what,
		(unsigned long long)reader->frames + 1, (unsigned long long)reader->summary.bytes);
	return KVW_EPROTO;
}

/* Checks the frame END, which was just read: its numbers must be those of the frames before, and
 * nothing may follow. */
static enum kvw_err take_end(struct kvw_state_reader *reader, uint64_t bytes_before)
{
	struct end end;
	enum kvw_err err;
	uint8_t more;
	size_t got;

	memcpy(&end, reader->frame + sizeof(struct frame), sizeof(end));
	if (end.frames != reader->frames || end.records != reader->records ||
		end.bytes != bytes_before)
		return refuse_frame(reader, "counts that are not those of this snapshot");
	err = read_bytes(reader, &more, 1, &got);
	if (err != KVW_OK)
		return err;
	if (got > 0)
		return refuse_snapshot(reader, KVW_EPROTO, "bytes after its end");
	reader->ended = true;
	return KVW_ECLOSED;
}

/* The next frame, checked. */
static enum kvw_err read_frame(struct kvw_state_reader *reader)
{
	uint64_t before = reader->summary.bytes;
	const struct kvw_state_place place = {
		before, reader->chain, reader->frames, reader->records};
	struct kvw_state_section *section;
	struct frame head;
	enum kvw_err err;
	size_t got;

	err = read_bytes(reader, reader->frame, sizeof(head), &got);
	if (err != KVW_OK)
		return err;
	if (got < sizeof(head))
		return refuse_frame(reader, "an end that is too early");
	memcpy(&head, reader->frame, sizeof(head));
	if (head.length == 0 || head.length > KVW_STATE_FRAME || head.zero != 0 ||
		head.kind >= KVW_KEPT_KINDS)
		return refuse_frame(reader, "a damaged head");
	err = read_bytes(reader, reader->frame + sizeof(head), head.length, &got);
	if (err != KVW_OK)
		return err;
	if (got < head.length)
		return refuse_frame(reader, "an end that is too early");
	if (head.sum != frame_sum(reader->frame, head.length, reader->chain))
		return refuse_frame(reader, "a wrong checksum");
	if (head.kind == KVW_KEPT_END)
		return head.length == sizeof(struct end) ? take_end(reader, before)
							 : refuse_frame(reader, "a damaged end");
	reader->place = place;
	reader->chain = head.sum;
	reader->kind = (enum kvw_keep_kind)head.kind;
	reader->length = head.length;
	reader->left = head.records;
	reader->at = 0;
	reader->frames++;
	section = &reader->summary.sections[head.kind];
	section->frames++;
	section->records += head.records;
	section->bytes += sizeof(head) + head.length;
	return KVW_OK;
}

enum kvw_err kvw_state_read(struct kvw_state_reader *reader, enum kvw_keep_kind *kind,
	const uint8_t **record, size_t *len)
{
	const uint8_t *at = NULL;
	uint16_t size;

	if (reader->ended)
		return KVW_ECLOSED;
	if (reader->left == 0) {
		enum kvw_err err;

		if (reader->at != reader->length)
			return refuse_frame(reader, "bytes behind the last record");
		err = read_frame(reader);
		if (err != KVW_OK)
			return err;
	}
	at = reader->frame + sizeof(struct frame) + reader->at;
	if (reader->left == 0 || reader->length - reader->at < sizeof(size))
		return refuse_frame(reader, "fewer records than it says");
	memcpy(&size, at, sizeof(size));
	if (size > KVW_KEPT_MOST || reader->length - reader->at - sizeof(size) < size)
		return refuse_frame(reader, "a record that is too long");
	reader->at += (uint32_t)sizeof(size) + size;
	reader->left--;
	reader->records++;
	*kind = reader->kind;
	*record = at + sizeof(size);
	*len = size;
	return KVW_OK;
}

enum kvw_err kvw_state_read_at(struct kvw_state_reader *reader, const struct kvw_state_place *place)
{
	if (lseek(reader->fd, (off_t)place->bytes, SEEK_SET) < 0) {
		(void)snprintf(
			reader->why, sizeof(reader->why), "cannot seek: %s", strerror(errno));
		return KVW_EIO;
	}
	reader->summary.bytes = place->bytes;
	reader->chain = place->chain;
	reader->frames = place->frames;
	reader->records = place->records;
	reader->left = reader->at = reader->length = 0;
	reader->ended = false;
	return KVW_OK;
}

enum kvw_err kvw_state_read_all(struct kvw_state_reader *reader, int fd, uint64_t most)
{
	enum kvw_err err = kvw_state_read_begin(reader, fd, most);
	const uint8_t *record;
	enum kvw_keep_kind kind;
	size_t len;

	while (err == KVW_OK)
		err = kvw_state_read(reader, &kind, &record, &len);
	return err == KVW_ECLOSED ? KVW_OK : err;
}
