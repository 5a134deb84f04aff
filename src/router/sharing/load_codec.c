/* load_codec.c - encodes and decodes messages about load. */
#include "sharing/load_codec.h"

#include <string.h>
#include <xxhash.h>

#define HEAD    "kvL\1"
#define CHECK   4
#define NS_UNIT 1000
#define LONGEST 9 /* bytes of a number: 63 bits */

/* --- writing --- */

static char *put_word(char *at, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*at++ = (char)(value >> (8 * i));
	return at;
}

static char *put_number(char *at, uint64_t value)
{
	value &= INT64_MAX;
	while (value > 0x7f) {
		*at++ = (char)(0x80 | (value & 0x7f));
		value >>= 7;
	}
	*at++ = (char)value;
	return at;
}

static char *put_ns(char *at, int64_t ns)
{
	return put_number(at, ns > 0 ? (uint64_t)ns / NS_UNIT : 0);
}

size_t kvw_load_write(const struct kvw_load_news *news, char *out)
{
	char *at = out;

	memcpy(at, HEAD, 4);
	at = put_word(at + 4, news->origin, 8);
	at = put_number(at, news->sequence);
	at = put_ns(at, news->work.waiting_ns);
	at = put_ns(at, news->work.first_waiting_ns);
	at = put_ns(at, news->work.offered_per_s);
	at = put_number(at, news->count);
	for (size_t i = 0; i < news->count; i++) {
		const struct kvw_load_part *part = &news->entries[i].part;

		at = put_word(at, news->entries[i].key, 8);
		at = put_ns(at, part->queue_ns);
		at = put_ns(at, part->waiting_ns);
		at = put_number(at, part->inflight);
		at = put_number(at, part->context);
		at = put_number(at, part->sequences);
		at = put_number(at, part->unanswered);
	}
	at = put_word(at, XXH3_64bits(out, (size_t)(at - out)), CHECK);
	return (size_t)(at - out);
}

/* --- reading --- */

struct input {
	const unsigned char *at, *end;
	bool bad;
};

static uint64_t get_word(struct input *in, size_t bytes)
{
	uint64_t value = 0;

	if ((size_t)(in->end - in->at) < bytes) {
		in->bad = true;
		return 0;
	}
	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t)in->at[i] << (8 * i);
	in->at += bytes;
	return value;
}

static uint64_t get_number(struct input *in)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < LONGEST && in->at < in->end; i++) {
		unsigned char byte = *in->at++;

		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (byte < 0x80)
			return value;
	}
	in->bad = true;
	return 0;
}

static int64_t get_ns(struct input *in, int64_t most_ns)
{
	uint64_t value = get_number(in);

	return value < (uint64_t)most_ns / NS_UNIT ? (int64_t)value * NS_UNIT : most_ns;
}

static uint32_t get_count(struct input *in, uint32_t most)
{
	uint64_t value = get_number(in);

	return value < most ? (uint32_t)value : most;
}

static void get_entry(struct input *in, struct kvw_load_entry *entry)
{
	struct kvw_load_part *part = &entry->part;

	entry->key = get_word(in, 8);
	part->queue_ns = get_ns(in, KVW_LOAD_MOST_QUEUE_NS);
	part->waiting_ns = get_ns(in, KVW_LOAD_MOST_QUEUE_NS);
	part->inflight = get_count(in, KVW_LOAD_MOST_INFLIGHT);
	part->context = get_count(in, KVW_LOAD_MOST_CONTEXT);
	part->sequences = get_count(in, KVW_LOAD_MOST_INFLIGHT);
	part->unanswered = get_count(in, part->sequences);
}

enum kvw_err kvw_load_read(const char *data, size_t len, struct kvw_load_news *out)
{
	struct input in = {(const unsigned char *)data, (const unsigned char *)data + len, false};
	struct input check;

	if (len < 4 + 8 + 5 + CHECK || len > KVW_LOAD_BYTES || memcmp(data, HEAD, 4) != 0)
		return KVW_EPROTO;
	in.at += 4;
	in.end -= CHECK;
	check = (struct input){in.end, in.end + CHECK, false};
	if (get_word(&check, CHECK) != (uint32_t)XXH3_64bits(data, len - CHECK))
		return KVW_EPROTO;
	out->origin = get_word(&in, 8);
	out->sequence = get_number(&in);
	out->work.waiting_ns = get_ns(&in, KVW_LOAD_MOST_WORK_NS);
	out->work.first_waiting_ns = get_ns(&in, KVW_LOAD_MOST_WORK_NS);
	out->work.offered_per_s = get_ns(&in, KVW_LOAD_MOST_WORK_NS);
	out->count = (size_t)get_number(&in);
	if (in.bad || out->count > KVW_MAX_WORKERS || out->origin == 0 || out->sequence == 0)
		return KVW_EPROTO;
	for (size_t i = 0; i < out->count && !in.bad; i++)
		get_entry(&in, &out->entries[i]);
	return in.bad || in.at != in.end ? KVW_EPROTO : KVW_OK;
}
