/*
 * fidelity.c - compares the texts of a copy's and a client's answer.
 *
 * Positions and lengths are in characters: bytes that do not continue a character of UTF-8.
 */
#include "proxy/fidelity.h"

#include <stdlib.h>
#include <string.h>

#include "openai/answer_text.h"
#include "proxy/groups.h"

#define AHEAD_MOST  ((size_t)64 << 10)
#define AHEAD_FIRST ((size_t)1 << 10)

enum side { CLIENT, COPY, SIDES };

/* State of one answer of the pair. */
struct half {
	struct kvw_answer_text answer;
	uint64_t characters;
	bool ended, good;
};

struct kvw_fidelity {
	struct kvw_fidelity *next; /* comparison with another copy of the same request */
	struct kvw_loop *loop;
	int64_t memory;      /* groups.shadow_memory */
	uint8_t group, of;   /* labels of the copy's group and of the client's group */
	struct half halves[SIDES];
	uint64_t same;       /* length of the common beginning, as far as both have arrived */
	bool differ;         /* the texts differ after `same` */
	bool lost;           /* one side was too far ahead: the result is unknown */
	enum side leader;    /* the side whose text `ahead` holds, if any */
	/* bytes [used, len) are still to be compared; owned; `room` bytes are charged */
	char *ahead;
	size_t used, len, room;
};

/* --- the text that is ahead --- */

static void drop_ahead(struct kvw_fidelity *f)
{
	kvw_shared_shadow_release(f->loop->shared, f->room);
	kvw_metrics_gauge(f->loop->metrics, KVW_GAUGE_SHADOW_BYTES, -(int64_t)f->room);
	free(f->ahead);
	f->ahead = NULL;
	f->used = f->len = f->room = 0;
}

/* Makes room for `more` further bytes. */
static bool make_text_room(struct kvw_fidelity *f, size_t more)
{
	size_t room = f->room == 0 ? AHEAD_FIRST : f->room;
	char *text;

	if (f->used > 0) {
		memmove(f->ahead, f->ahead + f->used, f->len - f->used);
		f->len -= f->used;
		f->used = 0;
	}
	while (room < f->len + more)
		room *= 2;
	if (room == f->room)
		return true;
	if (room > AHEAD_MOST ||
		!kvw_shared_shadow_take(f->loop->shared, f->memory, room - f->room))
		return false;
	text = realloc(f->ahead, room);
	if (text == NULL) {
		kvw_shared_shadow_release(f->loop->shared, room - f->room);
		return false;
	}
	kvw_metrics_gauge(f->loop->metrics, KVW_GAUGE_SHADOW_BYTES, (int64_t)(room - f->room));
	f->ahead = text;
	f->room = room;
	return true;
}

/* --- comparing --- */

static bool continues(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

static uint64_t count_characters(const char *text, size_t len)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += !continues(text[i]);
	return n;
}

/* Returns the length in bytes of the common beginning. */
static size_t common(const char *a, const char *b, size_t len)
{
	size_t n = 0;

	while (n < len && a[n] == b[n])
		n++;
	return n;
}

static void found_difference(struct kvw_fidelity *f)
{
	f->differ = true;
	drop_ahead(f);
}

/* Compares text with the other side's text that is ahead. Returns how many bytes were equal. */
static size_t compare_with_ahead(struct kvw_fidelity *f, const char *text, size_t len)
{
	const char *other = f->ahead + f->used;
	size_t most = len < f->len - f->used ? len : f->len - f->used,
	       n = common(text, other, most);

	f->same += count_characters(text, n);
	f->used += n;
	if (n < most) {
		/* amid a character */
		f->same -= f->same > 0 && continues(text[n]) && continues(other[n]);
		found_difference(f);
	}
	return n;
}

static void take_text(struct kvw_fidelity *f, enum side side, const char *text, size_t len)
{
	f->halves[side].characters += count_characters(text, len);
	if (f->differ || f->lost)
		return;
	if (f->used < f->len && f->leader != side) {
		size_t n = compare_with_ahead(f, text, len);

		text += n;
		len -= n;
	}
	if (f->differ || len == 0)
		return;
	/* the other side has ended, and all its text was compared: this text is longer */
	if (f->halves[side == CLIENT ? COPY : CLIENT].ended) {
		found_difference(f);
		return;
	}
	if (f->used == f->len)
		f->used = f->len = 0;
	f->leader = side;
	if (!make_text_room(f, len)) {
		f->lost = true;
		drop_ahead(f);
		return;
	}
	memcpy(f->ahead + f->len, text, len);
	f->len += len;
}

static void take_client(void *user, const char *text, size_t len)
{
	take_text(user, CLIENT, text, len);
}

static void take_copy(void *user, const char *text, size_t len)
{
	take_text(user, COPY, text, len);
}

/* --- the end --- */

static enum kvw_fidelity_result result_of_copy(const struct kvw_fidelity *f)
{
	const struct half *client = &f->halves[CLIENT], *copy = &f->halves[COPY];

	if (!client->good || !copy->good || client->answer.failed || copy->answer.failed)
		return KVW_FIDELITY_UNFINISHED;
	if (f->lost || client->answer.several || copy->answer.several ||
		client->characters + copy->characters == 0)
		return KVW_FIDELITY_UNREAD;
	return f->differ ? KVW_FIDELITY_DIFFERENT : KVW_FIDELITY_EQUAL;
}

static void end_side(struct kvw_fidelity *f, enum side side, bool good)
{
	struct half *half = &f->halves[side], *other = &f->halves[side == CLIENT ? COPY : CLIENT];

	half->ended = true;
	half->good = good;
	if (f->used < f->len && f->leader != side)
		found_difference(f);
	if (!good) {
		f->lost = true; /* no text needs to be kept any more */
		drop_ahead(f);
	}
	if (!other->ended)
		return;
	kvw_metrics_group_fidelity(f->loop->metrics, f->group, f->of, result_of_copy(f),
		&(struct kvw_fidelity_lengths){.same = f->same,
			.client = f->halves[CLIENT].characters,
			.copy = f->halves[COPY].characters});
	drop_ahead(f);
	free(f);
}

/* --- calls --- */

struct kvw_fidelity *kvw_fidelity_begin(struct kvw_exchange *x, uint8_t label)
{
	struct kvw_fidelity *f;

	f = x->greedy ? calloc(1, sizeof(*f)) : NULL;
	if (f == NULL)
		return NULL;
	f->loop = x->loop;
	f->memory = (int64_t)x->config->groups_shadow_memory;
	f->group = label;
	f->of = kvw_groups_label(x);
	f->next = x->fidelity;
	x->fidelity = f;
	return f;
}

void kvw_fidelity_client(struct kvw_exchange *x, const char *data, size_t len)
{
	for (struct kvw_fidelity *f = x->fidelity; f != NULL; f = f->next)
		kvw_answer_text_feed(&f->halves[CLIENT].answer, data, len, take_client, f);
}

void kvw_fidelity_client_end(struct kvw_exchange *x, enum kvw_end how)
{
	/* After several attempts the text may include that of an earlier attempt. */
	bool good = how == KVW_END_COMPLETE && x->status == 200 && x->tried.attempts == 1;
	struct kvw_fidelity *f, *next;

	for (f = x->fidelity; f != NULL; f = next) {
		next = f->next;
		end_side(f, CLIENT, good);
	}
	x->fidelity = NULL;
}

void kvw_fidelity_copy(struct kvw_fidelity *f, const char *data, size_t len)
{
	kvw_answer_text_feed(&f->halves[COPY].answer, data, len, take_copy, f);
}

void kvw_fidelity_copy_end(struct kvw_fidelity *f, bool good)
{
	end_side(f, COPY, good);
}
