/*
 * main.c - the Redis client under load, each byte of what it reads checked.
 *
 *	redis-drive --url redis-cluster://127.0.0.1:7000 --keys 500 --bytes 65536 --depth 16
 *
 * Each of `depth` lanes owns the keys whose number leaves its own as a remainder, and does one
 * operation at a time on a random one of them: SET of the next version, or GET. A value begins with
 * its key's number, its version and its length; the rest is a stream of numbers made from those, so
 * that pieces of two values never look like one. Counted are
 *
 *	wrong    bytes that are not those of any version that was ever sent
 *	stale    an older version than one that the server said it had (a failover may lose writes,
 *	         anything else may not)
 *	gone     nothing there, though the server said that it had it (as above)
 *	late     operations that ended more than --late-ms behind their deadline
 *
 * and each way in which an operation ends. A line of JSON is written every --every-ms, and a last
 * one with "final": true after SIGTERM, SIGINT or the end of standard input. Exit status: 0; 1 if
 * anything was wrong or late; 2 for a mistake in the command line.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/redis.h"

#define HEADER_BYTES 24
#define KEY_BYTES    128
#define REQUEST_ROOM 256
#define MS           1000000

struct options {
	const char *url, *service, *ca, *certificate, *key, *username, *password, *prefix;
	uint64_t keys, bytes, depth, connections, deadline_ms, connect_ms, pause_us, every_ms;
	uint64_t late_ms, writes, seed, inflight;
};

/* The versions of one key's value. */
struct known {
	uint64_t sent;  /* newest version that was sent, so the server may have it; 0: none */
	uint64_t acked; /* newest version whose SET the server has answered */
};

struct drive;

/* One operation at a time, with its buffers. */
struct lane {
	struct kvw_redis_command command; /* user: the lane */
	struct drive *drive;
	uint64_t number;
	uint64_t key;     /* key of the operation */
	uint64_t version; /* version that a SET writes */
	bool set, busy;
	int64_t next_ns;
	int64_t begun_ns;
	char request[REQUEST_ROOM];
	struct iovec parts[4];
	struct iovec segments[2];
	/* room for options.bytes; the value of a SET or GET behind its header */
	unsigned char *value;
	unsigned char header[HEADER_BYTES];
};

struct counts {
	uint64_t sets, stored, gets, hits, nils, gone, stale, wrong, late, timeouts, unreachable,
		refused;
	uint64_t other, longest_ns;
};

struct drive {
	struct options options;
	struct kvw_redis *redis;
	struct lane *lanes;
	struct known *known;
	uint64_t random;
	struct counts counts;
	uint64_t busy;
	bool ending;
	char error[KVW_REDIS_TEXT]; /* the last error */
};

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t draw(struct drive *d)
{
	d->random += 0x9e3779b97f4a7c15u;
	return mix(d->random);
}

/* --- values ----------------------------------------------------------------------------------- */

static uint64_t length_of(const struct drive *d, uint64_t key, uint64_t version)
{
	return HEADER_BYTES + mix(key * 31 + version) % (d->options.bytes - HEADER_BYTES + 1);
}

static void make_header(unsigned char *out, uint64_t key, uint64_t version, uint64_t len)
{
	uint64_t words[3] = {key, version, len};

	memcpy(out, words, HEADER_BYTES);
}

/* Writes the bytes behind a value's header or, with `check`, compares them; returns whether they
 * are right. */
static bool stream(unsigned char *bytes, uint64_t len, uint64_t key, uint64_t version, bool check)
{
	uint64_t state = mix(key) + version;
	bool same = true;

	for (uint64_t at = 0; at < len; at += 8) {
		uint64_t word = mix(state += 0x9e3779b97f4a7c15u);
		size_t n = len - at < 8 ? len - at : 8;

		if (check)
			same &= memcmp(bytes + at, &word, n) == 0;
		else
			memcpy(bytes + at, &word, n);
	}
	return same;
}

/* --- the end of an operation ------------------------------------------------------------------ */

static void judge_value(struct drive *d, struct lane *l)
{
	const struct kvw_redis_command *c = &l->command;
	const struct known *known = &d->known[l->key];
	uint64_t words[3];

	d->counts.hits++;
	memcpy(words, l->header, HEADER_BYTES);
	if (c->lead_bytes != HEADER_BYTES || words[0] != l->key || words[1] == 0 ||
		words[1] > known->sent || words[2] != length_of(d, l->key, words[1]) ||
		c->bulk_bytes != words[2] ||
		!stream(l->value, words[2] - HEADER_BYTES, l->key, words[1], true)) {
		d->counts.wrong++;
		snprintf(d->error, sizeof(d->error), "wrong bytes of key %llu",
			(unsigned long long)l->key);
	} else {
		d->counts.stale += words[1] < known->acked;
	}
}

static void judge(struct drive *d, struct lane *l)
{
	const struct kvw_redis_command *c = &l->command;
	struct known *known = &d->known[l->key];

	if (c->status == KVW_ETIMEDOUT) {
		d->counts.timeouts++;
	} else if (c->status == KVW_EIO) {
		d->counts.unreachable++;
	} else if (c->status != KVW_OK) {
		d->counts.other++;
	} else if (c->reply == KVW_REDIS_ERROR) {
		d->counts.refused++;
	} else if (l->set && c->reply == KVW_REDIS_STATUS) {
		known->acked = l->version;
		d->counts.stored++;
		return;
	} else if (!l->set && c->reply == KVW_REDIS_BULK) {
		judge_value(d, l);
		return;
	} else if (!l->set && c->reply == KVW_REDIS_NIL) {
		d->counts.nils++;
		d->counts.gone += known->acked > 0;
		return;
	} else {
		d->counts.wrong++; /* an answer to another request */
	}
	if (c->text[0] != '\0')
		memcpy(d->error, c->text, sizeof(d->error));
}

static void lane_done(struct kvw_redis_command *command)
{
	struct lane *l = command->user;
	struct drive *d = l->drive;
	int64_t now = kvw_clock_ns();
	uint64_t took = (uint64_t)(now - l->begun_ns);

	l->busy = false;
	d->busy--;
	l->next_ns = now + (int64_t)d->options.pause_us * 1000;
	if (command->status == KVW_ECLOSED)
		return;
	judge(d, l);
	if (took > d->counts.longest_ns)
		d->counts.longest_ns = took;
	d->counts.late += now > command->deadline_ns + (int64_t)d->options.late_ms * MS;
}

/* --- its beginning ---------------------------------------------------------------------------- */

static void begin_set(struct drive *d, struct lane *l, const char *key)
{
	uint64_t len;

	l->version = ++d->known[l->key].sent;
	len = length_of(d, l->key, l->version);
	make_header(l->header, l->key, l->version, len);
	stream(l->value, len - HEADER_BYTES, l->key, l->version, false);
	l->parts[0].iov_len = (size_t)snprintf(l->request, sizeof(l->request),
		"*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%llu\r\n", strlen(key), key,
		(unsigned long long)len);
	l->parts[1] = (struct iovec){l->header, HEADER_BYTES};
	l->parts[2] = (struct iovec){l->value, len - HEADER_BYTES};
	l->parts[3] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
	l->command.part_count = 4;
	l->command.lead = NULL;
	l->command.lead_room = l->command.into_count = 0;
	d->counts.sets++;
}

static void begin_get(struct drive *d, struct lane *l, const char *key)
{
	uint64_t room = d->options.bytes - HEADER_BYTES, half = draw(d) % (room + 1);

	memset(l->header, 0xa5, HEADER_BYTES);
	memset(l->value, 0xa5, room);
	l->parts[0].iov_len = (size_t)snprintf(l->request, sizeof(l->request),
		"*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key), key);
	l->command.part_count = 1;
	l->command.lead = l->header;
	l->command.lead_room = HEADER_BYTES;
	l->segments[0] = (struct iovec){l->value, half};
	l->segments[1] = (struct iovec){l->value + half, room - half};
	l->command.into_count = 2;
	d->counts.gets++;
}

static void begin(struct drive *d, struct lane *l, int64_t now)
{
	uint64_t mine = (d->options.keys - l->number + d->options.depth - 1) / d->options.depth;
	char key[KEY_BYTES];

	l->key = l->number + draw(d) % mine * d->options.depth;
	l->set = d->known[l->key].sent == 0 || draw(d) % 100 < d->options.writes;
	snprintf(key, sizeof(key), "%s%llu", d->options.prefix, (unsigned long long)l->key);
	memset(&l->command, 0, sizeof(l->command));
	l->parts[0].iov_base = l->request;
	l->command.parts = l->parts;
	l->command.into = l->segments;
	l->command.slot = kvw_redis_slot(key, strlen(key));
	l->command.deadline_ns = now + (int64_t)d->options.deadline_ms * MS;
	l->command.done = lane_done;
	l->command.user = l;
	l->begun_ns = now;
	if (l->set)
		begin_set(d, l, key);
	else
		begin_get(d, l, key);
	l->busy = true;
	d->busy++;
	kvw_redis_submit(d->redis, &l->command);
}

/* --- output ----------------------------------------------------------------------------------- */

static void print_text(const char *name, const char *text)
{
	printf(", \"%s\": \"", name);
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == '"' || *text == '\\')
			printf("\\u%04x", *text);
		else
			putchar(*text);
	putchar('"');
}

static void print_counts(struct drive *d, bool final)
{
	const struct counts *c = &d->counts;
	struct kvw_redis_stats s;
	const struct {
		const char *name;
		uint64_t value;
	} all[] = {{"sets", c->sets}, {"stored", c->stored}, {"gets", c->gets}, {"hits", c->hits},
		{"nils", c->nils}, {"gone", c->gone}, {"stale", c->stale}, {"wrong", c->wrong},
		{"late", c->late}, {"timeouts", c->timeouts}, {"unreachable", c->unreachable},
		{"refused", c->refused}, {"other", c->other}, {"longest_ms", c->longest_ns / MS}};

	kvw_redis_stats(d->redis, &s);
	printf("{\"final\": %s", final ? "true" : "false");
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		printf(", \"%s\": %llu", all[i].name, (unsigned long long)all[i].value);
	printf(", \"retries\": %llu, \"redirects\": %llu, \"reconnects\": %llu",
		(unsigned long long)s.retries, (unsigned long long)s.redirects,
		(unsigned long long)s.reconnects);
	printf(", \"in_flight\": %llu, \"servers\": %u, \"connections\": %u",
		(unsigned long long)s.in_flight, s.servers, s.connections);
	print_text("mode", s.mode);
	print_text("reason", s.reason);
	print_text("error", d->error);
	printf("}\n");
	fflush(stdout);
}

/* --- running ---------------------------------------------------------------------------------- */

static bool told_to_end(int signals)
{
	struct pollfd fds[2] = {{.fd = signals, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
	char byte;

	if (poll(fds, 2, 0) <= 0)
		return false;
	return fds[0].revents != 0 || (fds[1].revents != 0 && read(0, &byte, 1) <= 0);
}

static void run(struct drive *d, int end_fd)
{
	int64_t print_ns = kvw_clock_ns() + (int64_t)d->options.every_ms * MS;

	while (!d->ending || d->busy > 0) {
		int64_t now = kvw_clock_ns(), next = now + 20 * MS;

		for (uint64_t i = 0; i < d->options.depth && !d->ending; i++) {
			if (!d->lanes[i].busy && d->lanes[i].next_ns <= now)
				begin(d, &d->lanes[i], now);
			if (!d->lanes[i].busy && d->lanes[i].next_ns < next)
				next = d->lanes[i].next_ns;
		}
		kvw_redis_step(d->redis, next > now ? next - now : 0, &next);
		if (now >= print_ns) {
			print_counts(d, false);
			print_ns = now + (int64_t)d->options.every_ms * MS;
		}
		d->ending |= told_to_end(end_fd);
	}
}

static bool init_lanes(struct drive *d)
{
	d->lanes = calloc(d->options.depth, sizeof(*d->lanes));
	d->known = calloc(d->options.keys, sizeof(*d->known));
	if (d->lanes == NULL || d->known == NULL)
		return false;
	for (uint64_t i = 0; i < d->options.depth; i++) {
		d->lanes[i].drive = d;
		d->lanes[i].number = i;
		d->lanes[i].value = malloc(d->options.bytes);
		if (d->lanes[i].value == NULL)
			return false;
	}
	return true;
}

static void finish_lanes(struct drive *d)
{
	for (uint64_t i = 0; d->lanes != NULL && i < d->options.depth; i++)
		free(d->lanes[i].value);
	free(d->lanes);
	free(d->known);
}

static int64_t machine_ns(void *self)
{
	(void)self;
	return kvw_clock_ns();
}

static void write_log(void *self, uint32_t level, const char *line)
{
	(void)self;
	kvw_log(level, "redis-drive", "%s", line);
}

static int drive(struct drive *d, int end_fd)
{
	const struct options *o = &d->options;
	struct kvw_redis_url url;
	const char *wrong = kvw_redis_url_parse(o->url, &url);
	struct kvw_redis_options options = {
		.url = &url,
		.username = o->username,
		.password = o->password,
		.service = o->service,
		.tls_ca = o->ca,
		.tls_certificate = o->certificate,
		.tls_key = o->key,
		.connections = (uint32_t)o->connections,
		.inflight_bytes = o->inflight,
		.connect_ns = (uint64_t)o->connect_ms * MS,
		.env = {.now_ns = machine_ns, .log = write_log},
	};
	char why[KVW_REDIS_REASON] = "";
	int result = 2;

	if (wrong != NULL) {
		fprintf(stderr, "redis-drive: --url: %s\n", wrong);
		return 2;
	}
	if (!init_lanes(d)) {
		fprintf(stderr, "redis-drive: out of memory\n");
		goto out;
	}
	if (kvw_redis_create(&options, why, &d->redis) != KVW_OK) {
		fprintf(stderr, "redis-drive: %s\n", why);
		goto out;
	}
	run(d, end_fd);
	print_counts(d, true);
	result = d->counts.wrong + d->counts.late > 0 ? 1 : 0;
out:
	kvw_redis_destroy(d->redis);
	finish_lanes(d);
	return result;
}

/* --- the command line ------------------------------------------------------------------------- */

static bool read_options(int argc, char **argv, struct options *o)
{
	const struct {
		const char *name;
		const char **text;
		uint64_t *number;
	} all[] = {
		{"--url", &o->url, NULL},
		{"--service", &o->service, NULL},
		{"--ca", &o->ca, NULL},
		{"--certificate", &o->certificate, NULL},
		{"--key", &o->key, NULL},
		{"--username", &o->username, NULL},
		{"--password", &o->password, NULL},
		{"--prefix", &o->prefix, NULL},
		{"--keys", NULL, &o->keys},
		{"--bytes", NULL, &o->bytes},
		{"--depth", NULL, &o->depth},
		{"--connections", NULL, &o->connections},
		{"--deadline-ms", NULL, &o->deadline_ms},
		{"--connect-ms", NULL, &o->connect_ms},
		{"--pause-us", NULL, &o->pause_us},
		{"--every-ms", NULL, &o->every_ms},
		{"--late-ms", NULL, &o->late_ms},
		{"--writes", NULL, &o->writes},
		{"--seed", NULL, &o->seed},
		{"--inflight", NULL, &o->inflight},
	};
	size_t n = sizeof(all) / sizeof(all[0]), found;

	for (int i = 1; i < argc; i += 2) {
		for (found = 0; found < n && strcmp(all[found].name, argv[i]) != 0; found++)
			;
		if (found == n || i + 1 == argc)
			return false;
		if (all[found].text != NULL)
			*all[found].text = argv[i + 1];
		else
			*all[found].number = strtoull(argv[i + 1], NULL, 10);
	}
	return o->url != NULL && o->depth > 0 && o->depth <= o->keys && o->keys <= 1000000 &&
	       o->bytes >= HEADER_BYTES && strlen(o->prefix) < KEY_BYTES - 24;
}

/* Returns a descriptor that becomes readable when the program is to end. */
static int listen_for_end(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
		return -1;
	return signalfd(-1, &set, SFD_CLOEXEC);
}

int main(int argc, char **argv)
{
	struct drive d = {.options = {.prefix = "drive:",
				  .keys = 200,
				  .bytes = 16384,
				  .depth = 8,
				  .connections = 2,
				  .deadline_ms = 5000,
				  .connect_ms = 1000,
				  .pause_us = 1000,
				  .every_ms = 100,
				  .late_ms = 1000,
				  .writes = 30,
				  .seed = 1,
				  .inflight = 64 << 20}};
	int end_fd, result;

	if (!read_options(argc, argv, &d.options)) {
		fprintf(stderr, "usage: redis-drive --url URL [--keys N] [--bytes N] [--depth N] "
				"...\n");
		return 2;
	}
	end_fd = listen_for_end();
	if (end_fd < 0) {
		perror("redis-drive: signalfd");
		return 2;
	}
	d.random = d.options.seed;
	result = drive(&d, end_fd);
	close(end_fd);
	return result;
}
