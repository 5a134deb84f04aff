/*
 * fake_redis.c - a map, RESP in, replies out.
 */
#include "fake_redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MOST 4200

struct value {
	struct value *next;
	char *name;
	uint8_t *bytes;
	size_t len;
	int64_t expires_ns; /* 0: never */
	int64_t ttl_ms;
	bool list;
};

struct kvw_redis {
	struct kvw_redis_env env;
	struct kvw_redis_command *first, **end;
	struct kvw_redis *next;
};

struct fake_server fake;
static struct value *values;
static int64_t now_ns;

/* --- map --------------------------------------------------------------------------------------- */

static struct value **find(const char *name)
{
	struct value **at = &values;

	while (*at != NULL && strcmp((*at)->name, name) != 0)
		at = &(*at)->next;
	return at;
}

void fake_remove(const char *name)
{
	struct value **at = find(name), *v = *at;

	if (v == NULL)
		return;
	*at = v->next;
	free(v->name);
	free(v->bytes);
	free(v);
}

void fake_reset(void)
{
	while (values != NULL)
		fake_remove(values->name);
	fake = (struct fake_server){0};
}

void fake_expire(int64_t now)
{
	struct value *v = values, *next;

	now_ns = now;
	for (; v != NULL; v = next) {
		next = v->next;
		if (v->expires_ns != 0 && v->expires_ns <= now)
			fake_remove(v->name);
	}
}

uint8_t *fake_value(const char *name, size_t *len)
{
	struct value *v = *find(name);

	if (v == NULL)
		return NULL;
	*len = v->len;
	return v->bytes;
}

void fake_set(const char *name, const void *bytes, size_t len)
{
	struct value *v = malloc(sizeof(*v));

	fake_remove(name);
	*v = (struct value){
		.next = values, .name = strdup(name), .bytes = malloc(len + 1), .len = len};
	memcpy(v->bytes, bytes, len);
	v->bytes[len] = '\0';
	values = v;
}

void fake_make_list(const char *name)
{
	fake_set(name, "", 0);
	values->list = true;
}

const char *fake_name(size_t i)
{
	struct value *v = values;

	for (; v != NULL && i > 0; i--)
		v = v->next;
	return v != NULL ? v->name : NULL;
}

size_t fake_count(const char *part)
{
	size_t count = 0;

	for (struct value *v = values; v != NULL; v = v->next)
		count += strstr(v->name, part) != NULL;
	return count;
}

int64_t fake_ttl_ms(const char *name)
{
	struct value *v = *find(name);

	return v != NULL ? v->ttl_ms : -1;
}

/* --- commands ---------------------------------------------------------------------------------- */

struct words {
	char *all;
	char *at[WORDS_MOST];
	size_t len[WORDS_MOST];
	size_t count;
};

static void parse(const struct kvw_redis_command *c, struct words *w)
{
	size_t total = 0, at = 0;
	char *p;

	for (uint32_t i = 0; i < c->part_count; i++)
		total += c->parts[i].iov_len;
	w->all = malloc(total + 1);
	for (uint32_t i = 0; i < c->part_count; i++) {
		memcpy(w->all + at, c->parts[i].iov_base, c->parts[i].iov_len);
		at += c->parts[i].iov_len;
	}
	w->all[total] = '\0';
	p = w->all;
	if (*p != '*')
		abort();
	w->count = strtoul(p + 1, &p, 10);
	if (w->count > WORDS_MOST)
		abort();
	p += 2;
	for (size_t i = 0; i < w->count; i++) {
		if (*p != '$')
			abort();
		w->len[i] = strtoul(p + 1, &p, 10);
		w->at[i] = p + 2;
		p += 2 + w->len[i];
		if (memcmp(p, "\r\n", 2) != 0)
			abort();
		*p = '\0';
		p += 2;
	}
	if (p != w->all + total)
		abort();
}

static void bulk(struct kvw_redis_command *c, const uint8_t *bytes, size_t len)
{
	uint64_t room = c->lead_room;
	size_t at;

	for (uint32_t i = 0; i < c->into_count; i++)
		room += c->into[i].iov_len;
	c->bulk_bytes = len;
	if (len > room) {
		c->status = KVW_ELIMIT;
		return;
	}
	c->reply = KVW_REDIS_BULK;
	at = len < c->lead_room ? len : c->lead_room;
	c->lead_bytes = (uint32_t)at;
	if (at > 0)
		memcpy(c->lead, bytes, at);
	for (uint32_t i = 0; i < c->into_count && at < len; i++) {
		size_t n = len - at < c->into[i].iov_len ? len - at : c->into[i].iov_len;

		memcpy(c->into[i].iov_base, bytes + at, n);
		at += n;
	}
}

static void fail(struct kvw_redis_command *c, const char *text)
{
	c->reply = KVW_REDIS_ERROR;
	(void)snprintf(c->text, sizeof(c->text), "%s", text);
}

static void integer(struct kvw_redis_command *c, int64_t value)
{
	c->reply = KVW_REDIS_INTEGER;
	c->integer = value;
}

static void do_set(struct kvw_redis_command *c, const struct words *w)
{
	bool there = *find(w->at[1]) != NULL;
	int64_t ttl_ms = 0;

	for (size_t i = 3; i < w->count; i++) {
		if (strcmp(w->at[i], "PX") == 0)
			ttl_ms = strtoll(w->at[++i], NULL, 10);
		else if (strcmp(w->at[i], there ? "NX" : "XX") == 0) {
			c->reply = KVW_REDIS_NIL;
			return;
		}
	}
	fake.sets++;
	fake_set(w->at[1], w->at[2], w->len[2]);
	values->ttl_ms = ttl_ms;
	values->expires_ns = ttl_ms != 0 ? now_ns + ttl_ms * 1000000 : 0;
	if (w->len[2] > fake.largest)
		fake.largest = w->len[2];
	c->reply = KVW_REDIS_STATUS;
	(void)snprintf(c->text, sizeof(c->text), "OK");
}

static void do_range(struct kvw_redis_command *c, const struct words *w, const struct value *v)
{
	long from = strtol(w->at[2], NULL, 10), to = strtol(w->at[3], NULL, 10);
	long len = v != NULL ? (long)v->len : 0;

	fake.ranges++;
	from = from < 0 ? from + len : from;
	to = to < 0 ? to + len : to;
	from = from < 0 ? 0 : from;
	if (v == NULL || from > to || from >= len)
		bulk(c, (const uint8_t *)"", 0);
	else
		bulk(c, v->bytes + from, (size_t)((to < len ? to : len - 1) - from + 1));
}

/* The script of redis_table.c, without a table: it begins now. */
static void do_table(struct kvw_redis_command *c, const struct words *w)
{
	c->found = calloc(2, sizeof(*c->found));
	c->element_count = 2;
	c->found[0] = (struct kvw_redis_element){.data = strdup(w->at[7]), .len = w->len[7], .depth = 1};
	c->found[1] = (struct kvw_redis_element){.data = strdup("0"), .len = 1, .depth = 1};
	c->reply = KVW_REDIS_ARRAY;
}

static bool is_write(const char *verb)
{
	return strcmp(verb, "SET") == 0;
}

static void execute(struct kvw_redis_command *c, const struct words *w)
{
	const char *verb = w->at[0];
	struct value *v = w->count > 1 ? *find(w->at[1]) : NULL;
	int64_t count = 0;

	if (fake.error != NULL && (is_write(verb) || strncmp(fake.error, "OOM", 3) != 0)) {
		if (is_write(verb) || strcmp(verb, "UNLINK") == 0) {
			fail(c, fake.error);
			return;
		}
	}
	if (v != NULL && v->list && strcmp(verb, "UNLINK") != 0 && strcmp(verb, "EXISTS") != 0 &&
		strcmp(verb, "SET") != 0) {
		fail(c, "WRONGTYPE Operation against a key holding the wrong kind of value");
	} else if (strcmp(verb, "GET") == 0) {
		fake.gets++;
		if (v == NULL)
			c->reply = KVW_REDIS_NIL;
		else
			bulk(c, v->bytes, v->len);
	} else if (strcmp(verb, "SET") == 0) {
		do_set(c, w);
	} else if (strcmp(verb, "GETRANGE") == 0) {
		do_range(c, w, v);
	} else if (strcmp(verb, "STRLEN") == 0) {
		integer(c, v != NULL ? (int64_t)v->len : 0);
	} else if (strcmp(verb, "EXISTS") == 0 || strcmp(verb, "UNLINK") == 0) {
		for (size_t i = 1; i < w->count; i++) {
			count += *find(w->at[i]) != NULL;
			if (verb[0] == 'U')
				fake_remove(w->at[i]);
		}
		fake.unlinks += verb[0] == 'U';
		integer(c, count);
	} else if (strcmp(verb, "EVAL") == 0) {
		do_table(c, w);
	} else {
		(void)fprintf(stderr, "fake_redis: %s\n", verb);
		abort();
	}
}

/* --- redis.h ----------------------------------------------------------------------------------- */

enum kvw_err kvw_redis_create(
	const struct kvw_redis_options *options, char *why, struct kvw_redis **out)
{
	struct kvw_redis *r = calloc(1, sizeof(*r));

	(void)why;
	r->env = options->env;
	r->end = &r->first;
	*out = r;
	return KVW_OK;
}

static struct kvw_redis_command *take(struct kvw_redis *r)
{
	struct kvw_redis_command *c = r->first;

	if (c != NULL) {
		r->first = c->next;
		if (r->first == NULL)
			r->end = &r->first;
	}
	return c;
}

void kvw_redis_destroy(struct kvw_redis *r)
{
	struct kvw_redis_command *c;

	if (r == NULL)
		return;
	while ((c = take(r)) != NULL) {
		c->status = KVW_ECLOSED;
		c->done(c);
	}
	free(r);
}

void kvw_redis_submit(struct kvw_redis *r, struct kvw_redis_command *command)
{
	command->next = NULL;
	*r->end = command;
	r->end = &command->next;
}

/* False: it waits on. */
static bool answer(struct kvw_redis *r, struct kvw_redis_command *c)
{
	static struct words w;
	bool stalled = fake.stalled;

	parse(c, &w);
	if (fake.stall_verb != NULL)
		stalled = strcmp(w.at[0], fake.stall_verb) == 0;
	fake_expire(kvw_redis_now(&r->env));
	if (fake.down) {
		c->status = KVW_EIO;
		c->reply = KVW_REDIS_NONE;
	} else if (kvw_redis_now(&r->env) >= c->deadline_ns) {
		c->status = KVW_ETIMEDOUT;
		c->reply = KVW_REDIS_NONE;
	} else if (stalled) {
		free(w.all);
		return false;
	} else {
		fake.commands++;
		c->status = KVW_OK;
		execute(c, &w);
	}
	free(w.all);
	c->done(c);
	return true;
}

size_t kvw_redis_step(struct kvw_redis *r, int64_t wait_ns, int64_t *next_ns)
{
	struct kvw_redis_command *c = r->first, *next;
	size_t done = 0;

	(void)wait_ns;
	(void)next_ns;
	r->first = NULL;
	r->end = &r->first;
	for (; c != NULL; c = next) {
		next = c->next;
		if (answer(r, c))
			done++;
		else
			kvw_redis_submit(r, c);
	}
	return done;
}

void kvw_redis_wake(struct kvw_redis *r)
{
	(void)r;
}

uint32_t kvw_redis_slot(const void *key, size_t len)
{
	(void)key;
	return (uint32_t)len % KVW_REDIS_SLOTS;
}

void kvw_redis_elements_free(struct kvw_redis_element *elements, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(elements[i].data);
	free(elements);
}

void kvw_redis_stats(struct kvw_redis *r, struct kvw_redis_stats *out)
{
	(void)r;
	*out = (struct kvw_redis_stats){.mode = "fake"};
}
