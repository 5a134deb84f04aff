/* fake_dns.c - a name server on loopback, by UDP and TCP, in the event loop of the test. */
#include "fake_dns.h"

#include <arpa/inet.h>
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#define RECORDS 1100
#define RULES   8
#define HEARD   4096
#define BYTES   65535

struct record {
	char name[128], text[128];
	uint16_t type;
	uint32_t ttl_s;
};

struct fake_dns {
	struct event_base *base;
	struct event *udp, *tcp;
	char servers[32];
	struct record records[RECORDS];
	size_t record_count;
	struct {
		char name[128];
		uint16_t type;
		enum fake_dns_rule rule;
	} rules[RULES];
	size_t rule_count;
	struct {
		char name[128];
		uint16_t type;
	} heard[HEARD];
	size_t heard_count, heard_tcp;
	unsigned char out[BYTES];
	size_t len;
};

static void put(struct fake_dns *fake, const void *bytes, size_t len)
{
	if (fake->len + len > sizeof(fake->out))
		return;
	memcpy(fake->out + fake->len, bytes, len);
	fake->len += len;
}

static void put16(struct fake_dns *fake, unsigned value)
{
	put(fake, (unsigned char[]){(unsigned char)(value >> 8), (unsigned char)value}, 2);
}

static void put_name(struct fake_dns *fake, const char *name)
{
	while (*name != '\0') {
		size_t len = strcspn(name, ".");
		unsigned char head = (unsigned char)len;

		put(fake, &head, 1);
		put(fake, name, len);
		name += len + (name[len] == '.');
	}
	put(fake, "", 1);
}

static void put_record(struct fake_dns *fake, const struct record *record)
{
	unsigned char address[16];
	size_t at;
	char target[128] = "";
	unsigned port = 0;

	put16(fake, 0xC00C); /* the question's name */
	put16(fake, record->type);
	put16(fake, 1);
	put16(fake, record->ttl_s >> 16);
	put16(fake, record->ttl_s & 0xFFFF);
	if (record->type != FAKE_DNS_SRV) {
		size_t len = record->type == FAKE_DNS_A ? 4 : 16;

		put16(fake, (unsigned)len);
		ck_assert_int_eq(
			inet_pton(len == 4 ? AF_INET : AF_INET6, record->text, address), 1);
		put(fake, address, len);
		return;
	}
	ck_assert_int_ge(sscanf(record->text, "%u %127s", &port, target), 1);
	at = fake->len;
	put16(fake, 0);
	put16(fake, 10);
	put16(fake, 20);
	put16(fake, port);
	put_name(fake, strcmp(target, ".") == 0 ? "" : target);
	fake->out[at] = (unsigned char)((fake->len - at - 2) >> 8);
	fake->out[at + 1] = (unsigned char)(fake->len - at - 2);
}

static enum fake_dns_rule rule_of(const struct fake_dns *fake, const char *name, uint16_t type)
{
	for (size_t i = fake->rule_count; i-- > 0;)
		if (strcasecmp(fake->rules[i].name, name) == 0 &&
			(fake->rules[i].type == type || fake->rules[i].type == FAKE_DNS_ANY))
			return fake->rules[i].rule;
	return FAKE_DNS_ANSWER;
}

/* The question of a message; returns where it ends. */
static size_t read_question(const unsigned char *in, size_t len, char name[128], uint16_t *type)
{
	size_t at = 12, used = 0;

	while (at < len && in[at] != 0) {
		for (size_t i = 0; i < in[at]; i++)
			name[used++] = (char)in[at + 1 + i];
		name[used++] = '.';
		ck_assert_uint_lt(used, 120);
		at += in[at] + 1u;
	}
	name[used > 0 ? used - 1 : 0] = '\0';
	*type = (uint16_t)(in[at + 1] << 8 | in[at + 2]);
	return at + 5;
}

/* False: no answer. */
static bool answer(struct fake_dns *fake, const unsigned char *in, size_t len, bool tcp)
{
	char name[128];
	uint16_t type;
	size_t end = read_question(in, len, name, &type), count = 0;
	enum fake_dns_rule rule = rule_of(fake, name, type);
	bool exists = false, cut = rule == FAKE_DNS_TRUNCATED && !tcp;

	if (fake->heard_count < HEARD) {
		strcpy(fake->heard[fake->heard_count].name, name);
		fake->heard[fake->heard_count++].type = type;
	}
	fake->heard_tcp += tcp;
	for (size_t i = 0; i < fake->record_count; i++) {
		bool named = strcasecmp(fake->records[i].name, name) == 0;

		exists = exists || named;
		count += named && fake->records[i].type == type;
	}
	if (rule == FAKE_DNS_SERVFAIL || cut)
		count = 0;
	fake->len = 0;
	put(fake, in, 2);
	put16(fake, 0x8180 | (cut ? 0x200 : 0) | (rule == FAKE_DNS_SERVFAIL ? 2 : !exists ? 3 : 0));
	put16(fake, 1);
	put16(fake, rule == FAKE_DNS_GARBAGE ? 3 : (unsigned)count);
	put16(fake, 0);
	put16(fake, 0);
	put(fake, in + 12, end - 12);
	if (rule == FAKE_DNS_GARBAGE)
		put(fake, "\xC0\x0C\x00\x21\x00\x01\xFF\xFF\xC0\xFF\x00\x40garbage", 19);
	for (size_t i = 0; i < fake->record_count && count > 0 && rule != FAKE_DNS_GARBAGE; i++)
		if (strcasecmp(fake->records[i].name, name) == 0 && fake->records[i].type == type)
			put_record(fake, &fake->records[i]);
	return rule != FAKE_DNS_SILENT;
}

static void on_udp(evutil_socket_t fd, short what, void *arg)
{
	struct fake_dns *fake = arg;
	unsigned char in[1024];
	struct sockaddr_storage from;
	socklen_t from_len = sizeof(from);
	ssize_t len = recvfrom(fd, in, sizeof(in), 0, (struct sockaddr *)&from, &from_len);

	(void)what;
	if (len >= 17 && answer(fake, in, (size_t)len, false))
		sendto(fd, fake->out, fake->len, 0, (struct sockaddr *)&from, from_len);
}

/* One connection: a question, its answer, and it is closed. */
struct client {
	struct fake_dns *fake;
	struct event *event;
	unsigned char in[1024];
	size_t len;
};

static void on_client(evutil_socket_t fd, short what, void *arg)
{
	struct client *client = arg;
	struct fake_dns *fake = client->fake;
	ssize_t got = read(fd, client->in + client->len, sizeof(client->in) - client->len);
	unsigned char head[2];

	(void)what;
	if (got > 0)
		client->len += (size_t)got;
	if (got > 0 &&
		(client->len < 2 || client->len < (size_t)(client->in[0] << 8 | client->in[1]) + 2))
		return;
	if (client->len >= 19 && answer(fake, client->in + 2, client->len - 2, true)) {
		head[0] = (unsigned char)(fake->len >> 8);
		head[1] = (unsigned char)fake->len;
		ck_assert_int_eq(write(fd, head, 2), 2);
		ck_assert_int_eq(write(fd, fake->out, fake->len), (ssize_t)fake->len);
	}
	event_free(client->event);
	close(fd);
	free(client);
}

static void on_tcp(evutil_socket_t fd, short what, void *arg)
{
	struct fake_dns *fake = arg;
	struct client *client = calloc(1, sizeof(*client));
	int accepted = accept(fd, NULL, NULL);

	(void)what;
	ck_assert_int_ge(accepted, 0);
	client->fake = fake;
	client->event = event_new(fake->base, accepted, EV_READ | EV_PERSIST, on_client, client);
	event_add(client->event, NULL);
}

struct fake_dns *fake_dns_create(struct event_base *base)
{
	struct fake_dns *fake = calloc(1, sizeof(*fake));
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	int udp = -1, tcp = -1, buffer = 1 << 20;

	ck_assert_ptr_nonnull(fake);
	/* One port for both: another process may have the other protocol's. */
	for (int i = 0; i < 20 && tcp < 0; i++) {
		at.sin_port = 0;
		if (udp >= 0)
			close(udp);
		udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(bind(udp, (struct sockaddr *)&at, sizeof(at)), 0);
		ck_assert_int_eq(getsockname(udp, (struct sockaddr *)&at, &len), 0);
		tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(tcp, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(tcp, 16) != 0) {
			close(tcp);
			tcp = -1;
		}
	}
	ck_assert_int_ge(tcp, 0);
	setsockopt(udp, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
	snprintf(fake->servers, sizeof(fake->servers), "127.0.0.1:%u", ntohs(at.sin_port));
	fake->base = base;
	fake->udp = event_new(base, udp, EV_READ | EV_PERSIST, on_udp, fake);
	fake->tcp = event_new(base, tcp, EV_READ | EV_PERSIST, on_tcp, fake);
	event_add(fake->udp, NULL);
	event_add(fake->tcp, NULL);
	return fake;
}

void fake_dns_destroy(struct fake_dns *fake)
{
	close(event_get_fd(fake->udp));
	close(event_get_fd(fake->tcp));
	event_free(fake->udp);
	event_free(fake->tcp);
	free(fake);
}

const char *fake_dns_servers(const struct fake_dns *fake)
{
	return fake->servers;
}

void fake_dns_add(
	struct fake_dns *fake, const char *name, uint16_t type, uint32_t ttl_s, const char *text)
{
	struct record *record = &fake->records[fake->record_count++];

	ck_assert_uint_le(fake->record_count, RECORDS);
	snprintf(record->name, sizeof(record->name), "%s", name);
	snprintf(record->text, sizeof(record->text), "%s", text);
	record->type = type;
	record->ttl_s = ttl_s;
}

void fake_dns_clear(struct fake_dns *fake)
{
	fake->record_count = 0;
	fake->rule_count = 0;
}

void fake_dns_rule(struct fake_dns *fake, const char *name, uint16_t type, enum fake_dns_rule rule)
{
	ck_assert_uint_lt(fake->rule_count, RULES);
	strcpy(fake->rules[fake->rule_count].name, name);
	fake->rules[fake->rule_count].type = type;
	fake->rules[fake->rule_count++].rule = rule;
}

size_t fake_dns_asked(const struct fake_dns *fake, const char *name, uint16_t type)
{
	size_t count = 0;

	for (size_t i = 0; i < fake->heard_count; i++)
		if ((name == NULL || strcasecmp(fake->heard[i].name, name) == 0) &&
			(type == FAKE_DNS_ANY || fake->heard[i].type == type))
			count++;
	return count;
}

size_t fake_dns_asked_tcp(const struct fake_dns *fake)
{
	return fake->heard_tcp;
}
