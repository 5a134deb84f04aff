/*
 * redis_ask.c - one command to Redis: its bytes, its answer, and the meaning of a failure.
 *
 * An ask (struct redis_ask) is one allocation, which holds the command, its pieces, the buffer for
 * its answer and its text. The bytes of a value are not copied.
 *
 * A late answer is the server's fault (KVT_EIO, which the breaker counts) if the tier's whole
 * deadline passed, or if no server answered anything since the command was sent: so requests with a
 * limit of a few milliseconds also detect a stopped server. Otherwise the server does answer other
 * requests, so a request that had little time, or spent it waiting behind others, ends as a miss.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/redis/redis_tier.h"

#define REFUSED_TOLD_NS 10000000000

/* --- a command's bytes
 * ------------------------------------------------------------------------- */

static size_t text_room(const struct redis_word *words, size_t count)
{
	size_t room = 24;

	for (size_t i = 0; i < count; i++)
		room += 28 + (words[i].at != NULL ? words[i].len : 0);
	return room;
}

static void add_piece(struct redis_ask *ask, const void *base, size_t len)
{
	struct iovec *piece = (struct iovec *)&ask->command.parts[ask->command.part_count++];

	*piece = (struct iovec){(void *)(uintptr_t)base, len};
}

static void write_words(struct redis_ask *ask, const struct redis_word *words, size_t count,
	const struct kvt_segment *segments, uint32_t segment_count, char *text)
{
	const char *from = text;

	text += sprintf(text, "*%zu\r\n", count);
	for (size_t i = 0; i < count; i++) {
		text += sprintf(text, "$%zu\r\n", words[i].len);
		if (words[i].at != NULL) {
			memcpy(text, words[i].at, words[i].len);
			text += words[i].len;
		} else {
			add_piece(ask, from, (size_t)(text - from));
			for (uint32_t j = 0; j < segment_count; j++)
				add_piece(ask, segments[j].base, segments[j].bytes);
			from = text;
		}
		*text++ = '\r';
		*text++ = '\n';
	}
	add_piece(ask, from, (size_t)(text - from));
}

struct redis_ask *redis_ask_new(struct redis_tier *t, const struct redis_word *words, size_t count,
	const struct kvt_segment *segments, uint32_t segment_count, uint32_t buffer)
{
	size_t pieces = (size_t)segment_count + 2;
	size_t head = sizeof(struct redis_ask) + (pieces + segment_count) * sizeof(struct iovec);
	struct redis_ask *ask = malloc(head + buffer + text_room(words, count));
	struct iovec *into;
	bool value = false;

	if (ask == NULL)
		return NULL;
	memset(ask, 0, sizeof(*ask));
	ask->t = t;
	ask->command.parts = (struct iovec *)(ask + 1);
	into = (struct iovec *)(ask + 1) + pieces;
	ask->buffer = (uint8_t *)ask + head;
	ask->buffer_bytes = buffer;
	for (size_t i = 0; i < count; i++)
		value = value || words[i].at == NULL;
	write_words(ask, words, count, segments, segment_count, (char *)ask->buffer + buffer);
	if (!value && segment_count > 0) {
		for (uint32_t i = 0; i < segment_count; i++)
			into[i] = (struct iovec){segments[i].base, segments[i].bytes};
		ask->command.into = into;
		ask->command.into_count = segment_count;
	}
	ask->command.lead = ask->buffer;
	ask->command.lead_room = buffer;
	ask->command.slot =
		count > 1 ? kvw_redis_slot(words[1].at, words[1].len) : KVW_REDIS_ANY_SLOT;
	return ask;
}

struct redis_ask *redis_ask_footer(struct redis_tier *t, const struct kvt_key *key)
{
	char name[REDIS_KEY_ROOM];
	size_t len = redis_chunk_name(&t->fingerprint, key, 0, name);
	struct redis_word words[4] = {
		REDIS_WORD("GETRANGE"), {name, len}, REDIS_WORD("-336"), REDIS_WORD("-1")};

	return redis_ask_new(t, words, 4, NULL, 0, REDIS_FOOTER);
}

struct redis_ask *redis_ask_parts(struct redis_tier *t, const char *verb, const struct kvt_key *key,
	uint32_t first, uint32_t parts)
{
	uint32_t count = parts - first;
	struct redis_word *words = calloc((size_t)count + 1, sizeof(*words));
	char *names = malloc((size_t)count * REDIS_KEY_ROOM);
	struct redis_ask *ask = NULL;

	if (words != NULL && names != NULL) {
		words[0] = (struct redis_word){verb, strlen(verb)};
		for (uint32_t i = 0; i < count; i++) {
			char *name = names + (size_t)i * REDIS_KEY_ROOM;

			words[i + 1] = (struct redis_word){
				name, redis_chunk_name(&t->fingerprint, key, first + i, name)};
		}
		ask = redis_ask_new(t, words, (size_t)count + 1, NULL, 0, 0);
	}
	free(words);
	free(names);
	return ask;
}

void redis_ask_free(struct redis_ask *ask)
{
	if (ask == NULL)
		return;
	if (ask->command.found != NULL)
		kvw_redis_elements_free(ask->command.found, ask->command.element_count);
	free(ask);
}

/* --- its answer
 * -------------------------------------------------------------------------------- */

static void command_done(struct kvw_redis_command *command)
{
	struct redis_ask *ask = (struct redis_ask *)command;

	if (command->status == KVW_OK)
		ask->t->heard_ns = kvt_now(ask->t->s);
	ask->answered(ask);
}

void redis_ask_send(struct redis_ask *ask, void (*answered)(struct redis_ask *ask), void *owner,
	int64_t deadline_ns)
{
	ask->answered = answered;
	ask->owner = owner;
	ask->sent_ns = kvt_now(ask->t->s);
	ask->command.deadline_ns = deadline_ns;
	ask->command.done = command_done;
	if (ask->t->closing) {
		ask->command.status = KVW_ECLOSED;
		answered(ask);
		return;
	}
	kvw_redis_submit(ask->t->redis, &ask->command);
}

enum kvt_status redis_status(enum kvw_err err)
{
	switch (err) {
	case KVW_OK:
		return KVT_OK;
	case KVW_ENOMEM:
		return KVT_ENOMEM;
	case KVW_EINVAL:
		return KVT_EINVAL;
	case KVW_ELIMIT:
		return KVT_FULL;
	case KVW_ECLOSED:
		return KVT_ECANCELED;
	default:
		return KVT_EIO;
	}
}

static enum kvt_status late(const struct redis_ask *ask)
{
	const struct redis_tier *t = ask->t;
	int64_t waited = kvt_now(t->s) - ask->sent_ns;

	if (t->heard_ns < ask->sent_ns)
		return waited >= REDIS_SILENT_NS ? KVT_EIO : KVT_MISS;
	if (ask->command.progress.tries == 0)
		return KVT_MISS;
	return waited >= (int64_t)t->deadline_ns ? KVT_EIO : KVT_MISS;
}

/* Returns whether the text is an error by which a server says that it stores nothing at present, or
 * stores no value of this length (proto-max-bulk-len); after the latter it also closes the
 * connection. */
static bool is_refusal(const char *text)
{
	static const char *const refusals[] = {"OOM ", "MISCONF ", "READONLY ", "NOREPLICAS ",
		"NOPERM ", "ERR Protocol error: invalid bulk length"};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		if (strncmp(text, refusals[i], strlen(refusals[i])) == 0)
			return true;
	}
	return false;
}

enum kvt_status redis_ask_status(const struct redis_ask *ask)
{
	const struct kvw_redis_command *c = &ask->command;

	switch (c->status) {
	case KVW_OK:
		break;
	case KVW_ETIMEDOUT:
		return late(ask);
	case KVW_ELIMIT:
	case KVW_ECLOSED:
	case KVW_ENOMEM:
		return redis_status(c->status);
	default:
		return KVT_EIO;
	}
	if (c->reply != KVW_REDIS_ERROR)
		return KVT_OK;
	if (strncmp(c->text, "WRONGTYPE", 9) == 0)
		return KVT_ECORRUPT;
	return is_refusal(c->text) ? KVT_FULL : KVT_EIO;
}

void redis_ask_copy(const struct redis_ask *ask, uint64_t at, void *out, size_t len)
{
	const struct kvw_redis_command *c = &ask->command;
	uint8_t *to = out;
	uint64_t from = c->lead_room;

	if (at < c->lead_room) {
		size_t n = c->lead_room - at < len ? (size_t)(c->lead_room - at) : len;

		memcpy(to, (const uint8_t *)c->lead + at, n);
		to += n;
		at += n;
		len -= n;
	}
	for (uint32_t i = 0; i < c->into_count && len > 0; i++) {
		const struct iovec *s = &c->into[i];

		if (at < from + s->iov_len) {
			size_t n = from + s->iov_len - at < len ? (size_t)(from + s->iov_len - at)
								: len;

			memcpy(to, (const uint8_t *)s->iov_base + (at - from), n);
			to += n;
			at += n;
			len -= n;
		}
		from += s->iov_len;
	}
}

void redis_refused(struct redis_tier *t, const char *why)
{
	int64_t now = kvt_now(t->s);

	t->refused++;
	if (t->told_ns != 0 && now - t->told_ns < REFUSED_TOLD_NS)
		return;
	t->told_ns = now;
	kvt_note(t->s, KVT_LOG_WARN, "redis: %llu chunks were not stored so far: %.150s",
		(unsigned long long)t->refused, why);
}
