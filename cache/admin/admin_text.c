/*
 * admin_text.c - writes and reads the lines on an owner's socket.
 */
#include "admin/admin_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD "erase 1 "
#define DONE "erased 1 "
#define LIST   "tenants 1 " /* request and answer */
/* begin of the request about the shared tier, whose answer has the form of the one about memory */
#define SHARED "shared 1 "

#define TIMEOUT_MOST 60000 /* ms */

/* --- hex -------------------------------------------------------------------------------------- */

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool kvt_admin_unhex(const char *digits, uint8_t *out, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		int high = digit(digits[2 * i]);
		int low = high < 0 ? -1 : digit(digits[2 * i + 1]);

		if (low < 0)
			return false;
		out[i] = (uint8_t)(high << 4 | low);
	}
	return digits[2 * bytes] == '\0' || digits[2 * bytes] == ' ';
}

/* Appends " " and hex digits, or " -" if there are no bytes; returns the text's new length. */
static size_t put(char *out, size_t at, size_t room, const void *bytes, size_t count)
{
	const uint8_t *from = bytes;

	if (at + 2 * count + 3 > room)
		return at;
	out[at++] = ' ';
	if (from == NULL)
		out[at++] = '-';
	for (size_t i = 0; from != NULL && i < count; i++)
		at += (size_t)sprintf(out + at, "%02x", from[i]);
	out[at] = '\0';
	return at;
}

/* --- requests --------------------------------------------------------------------------------- */

bool kvt_admin_write_erase(
	const struct kvt_which *which, uint64_t timeout_ns, char *out, size_t room)
{
	size_t at;

	if (which->key_count > KVT_ADMIN_KEYS)
		return false;
	at = (size_t)snprintf(out, room, HEAD "%d", which->dry_run != 0);
	at = put(out, at, room, which->tenant, sizeof(*which->tenant));
	at = put(out, at, room, which->fingerprint, sizeof(*which->fingerprint));
	at += (size_t)snprintf(out + at, room - at, " %" PRIu64, timeout_ns / 1000000);
	for (size_t i = 0; i < which->key_count; i++)
		at = put(out, at, room, &which->keys[i], sizeof(which->keys[i]));
	return true;
}

/* Returns the next word; NULL: there is none. */
static const char *next(const char *at)
{
	const char *blank = at != NULL ? strchr(at, ' ') : NULL;

	return blank != NULL ? blank + 1 : NULL;
}

/* Reads a word that is "-" or only hex digits. Returns false if it is neither. */
static bool take(const char *word, void *out, size_t bytes, bool *given)
{
	*given = word != NULL && strncmp(word, "- ", 2) != 0;
	return word != NULL && (!*given || kvt_admin_unhex(word, out, bytes));
}

bool kvt_admin_read_erase(const char *request, struct kvt_admin_erase *out)
{
	const char *at = request + strlen(HEAD);
	bool tenant, fingerprint;
	uint64_t timeout_ms;

	*out = (struct kvt_admin_erase){.which.size = sizeof(out->which)};
	if (strncmp(request, HEAD, strlen(HEAD)) != 0 || (*at != '0' && *at != '1') || at[1] != ' ')
		return false;
	out->which.dry_run = *at == '1';
	at = next(at);
	if (!take(at, &out->tenant, sizeof(out->tenant), &tenant))
		return false;
	at = next(at);
	if (!take(at, &out->fingerprint, sizeof(out->fingerprint), &fingerprint))
		return false;
	at = next(at);
	if (at == NULL)
		return false;
	timeout_ms = *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : 0;
	out->timeout_ns = (timeout_ms < TIMEOUT_MOST ? timeout_ms : TIMEOUT_MOST) * 1000000;
	while ((at = next(at)) != NULL) {
		if (out->which.key_count == KVT_ADMIN_KEYS ||
			!kvt_admin_unhex(at, out->keys[out->which.key_count].bytes, KVT_KEY_BYTES))
			return false;
		out->which.key_count++;
	}
	out->which.tenant = tenant ? &out->tenant : NULL;
	out->which.fingerprint = fingerprint ? &out->fingerprint : NULL;
	out->which.keys = out->which.key_count > 0 ? out->keys : NULL;
	return true;
}

/* --- answers ---------------------------------------------------------------------------------- */

void kvt_admin_write_erased(
	enum kvt_status status, const struct kvt_erased *erased, char *out, size_t room)
{
	size_t at = (size_t)snprintf(out, room, DONE "%u", (unsigned)status);

	for (size_t i = 0; i < KVT_TIER_COUNT && at < room; i++)
		at += (size_t)snprintf(out + at, room - at, " %" PRIu32 " %" PRIu64 " %" PRIu64,
			erased->tiers[i].counted, erased->tiers[i].chunks, erased->tiers[i].bytes);
}

bool kvt_admin_read_erased(const char *answer, enum kvt_status *status, struct kvt_erased *erased)
{
	const char *at = answer + strlen(DONE);

	if (strncmp(answer, DONE, strlen(DONE)) != 0)
		return false;
	*status = (enum kvt_status)strtoul(at, NULL, 10);
	*erased = (struct kvt_erased){.size = sizeof(*erased)};
	for (size_t i = 0; i < KVT_TIER_COUNT; i++) {
		const char *chunks = next(at = next(at)), *bytes = next(chunks);

		if (bytes == NULL)
			return false;
		erased->tiers[i].counted = (uint32_t)strtoul(at, NULL, 10);
		erased->tiers[i].chunks = strtoull(chunks, NULL, 10);
		erased->tiers[i].bytes = strtoull(bytes, NULL, 10);
		at = bytes;
	}
	return true;
}

/* --- tenants ---------------------------------------------------------------------------------- */

void kvt_admin_write_tenants(size_t most, char *out, size_t room)
{
	(void)snprintf(out, room, LIST "%zu", most);
}

void kvt_admin_write_shared(size_t most, char *out, size_t room)
{
	(void)snprintf(out, room, SHARED "%zu", most);
}

static bool read_most(const char *request, const char *what, size_t *most)
{
	const char *at = request + strlen(what);

	if (strncmp(request, what, strlen(what)) != 0 || *at < '0' || *at > '9')
		return false;
	*most = strtoul(at, NULL, 10);
	return true;
}

bool kvt_admin_read_tenants(const char *request, size_t *most)
{
	return read_most(request, LIST, most);
}

bool kvt_admin_read_shared(const char *request, size_t *most)
{
	return read_most(request, SHARED, most);
}

void kvt_admin_write_listed(const struct kvt_tenant_list *list, char *out, size_t room)
{
	size_t at = (size_t)snprintf(out, room, LIST "%" PRIu64 " %" PRIu64 " %" PRIu64,
		list->tenants, list->others.chunks, list->others.bytes);

	for (size_t i = 0; i < list->count && at < room; i++) {
		at = put(out, at, room, &list->at[i].tenant, sizeof(list->at[i].tenant));
		at += (size_t)snprintf(out + at, room - at, " %" PRIu64 " %" PRIu64,
			list->at[i].chunks, list->at[i].bytes);
	}
}

/* Reads two numbers. Returns the text after the blank that follows them; *whole: both were
 * there. */
static const char *take_numbers(const char *at, struct kvt_tenant_share *out, bool *whole)
{
	const char *bytes = next(at);

	*whole = bytes != NULL;
	if (bytes == NULL)
		return NULL;
	out->chunks = strtoull(at, NULL, 10);
	out->bytes = strtoull(bytes, NULL, 10);
	return next(bytes);
}

bool kvt_admin_read_listed(const char *answer, struct kvt_tenant_list *out)
{
	const char *at = answer + strlen(LIST);
	bool whole = false;

	*out = (struct kvt_tenant_list){.count = 0};
	if (strncmp(answer, LIST, strlen(LIST)) != 0)
		return false;
	out->tenants = strtoull(at, NULL, 10);
	at = next(at);
	if (at != NULL)
		at = take_numbers(at, &out->others, &whole);
	while (whole && at != NULL) {
		struct kvt_tenant_share *share = &out->at[out->count];

		if (out->count == KVT_TENANTS_LISTED ||
			!kvt_admin_unhex(at, share->tenant.bytes, sizeof(share->tenant.bytes)))
			return false;
		at = next(at);
		whole = false;
		if (at != NULL)
			at = take_numbers(at, share, &whole);
		out->count++;
	}
	return whole;
}

/* --- fragments -------------------------------------------------------------------------------- */

void kvt_admin_write_reused(const struct kvt_fragments_stats *s, char *out, size_t room)
{
	size_t at = (size_t)snprintf(out, room,
		KVT_ADMIN_FRAGMENTS " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, s->loads, s->hit_tokens,
		s->missed_tokens, s->loaded_bytes, s->moved_bytes);

	for (int i = 0; i < KVT_FRAGMENT_REFUSALS && at < room; i++)
		at += (size_t)snprintf(out + at, room - at, " %" PRIu64, s->refused[i]);
}

bool kvt_admin_read_reused(const char *answer, struct kvt_fragments_stats *out)
{
	struct kvt_fragments_stats s = {.size = sizeof(s)};
	uint64_t *const numbers[] = {&s.loads, &s.hit_tokens, &s.missed_tokens, &s.loaded_bytes, &s.moved_bytes};
	const char *at = answer + strlen(KVT_ADMIN_FRAGMENTS);

	if (strncmp(answer, KVT_ADMIN_FRAGMENTS " ", strlen(KVT_ADMIN_FRAGMENTS " ")) != 0)
		return false;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]) + KVT_FRAGMENT_REFUSALS; i++) {
		uint64_t *to = i < 5 ? numbers[i] : &s.refused[i - 5];

		at = next(at);
		if (at == NULL || *at < '0' || *at > '9')
			return false;
		*to = strtoull(at, NULL, 10);
	}
	*out = s;
	return true;
}
