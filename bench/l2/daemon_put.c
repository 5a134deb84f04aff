/*
 * daemon_put.c - objects into a tiered-storage daemon: one kept-alive connection, one PUT after the
 * other, from memory that holds them all.
 *
 * First objects 0, 1, 2 ... once, for later readers; then, measured, as many bytes as
 * asked for, under names that no object had before, as engines put, or with -o under those of the
 * first ones, which replaces them. Each body begins with a number of its own, also from run to run.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/l2/daemon_wire.h"
#include "bench/l2/spent.h"
#include "bench/l2/wire.h"

struct putter {
	const char *host;
	uint16_t port;
	uint64_t size, bytes;
	uint32_t objects;
	int server_pid, fd;
	char *memory; /* objects * size */
	uint64_t puts;
	uint64_t begun_ns; /* makes bodies and names differ from those of other runs */
	bool over;         /* PUTs replace the first objects instead of making new ones */
};

static void usage(void)
{
	kvb_fail("usage: daemon_put -p PORT [-h HOST] [-c OBJECT BYTES] [-k OBJECTS] [-b BYTES] "
		 "[-o over the first ones] [-s SERVER PID]");
}

static void parse(struct putter *p, int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "h:p:c:k:b:s:o")) != -1) {
		switch (option) {
		case 'h':
			p->host = optarg;
			break;
		case 'p':
			p->port = (uint16_t)strtoul(optarg, NULL, 10);
			break;
		case 'c':
			p->size = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			p->objects = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'b':
			p->bytes = strtoull(optarg, NULL, 10);
			break;
		case 's':
			p->server_pid = (int)strtol(optarg, NULL, 10);
			break;
		case 'o':
			p->over = true;
			break;
		default:
			usage();
		}
	}
	if (p->port == 0 || p->size < 8 || p->objects == 0)
		usage();
}

static void put(struct putter *p)
{
	char head[KVB_REQUEST_ROOM], text[KVB_ANSWER_ROOM];
	uint64_t number = p->puts++, mark = p->begun_ns + number;
	uint64_t object = p->over || number < p->objects ? number % p->objects : mark;
	char *body = p->memory + number % p->objects * p->size;
	struct iovec pieces[2] = {{head, kvb_put_head(head, object, p->size)}, {body, p->size}};
	struct kvb_answer answer;

	memcpy(body, &mark, sizeof(mark));
	kvb_send_all(p->fd, pieces, 2);
	kvb_answer_wait(p->fd, text, &answer);
	if (answer.status != 200)
		kvb_fail("daemon_put: %d %.*s", answer.status, (int)answer.body_bytes, answer.body);
}

int main(int argc, char **argv)
{
	struct putter p = {.host = "127.0.0.1", .size = 4u << 20, .bytes = 1u << 30, .objects = 64};
	struct kvb_spent spent;
	uint64_t count;

	parse(&p, argc, argv);
	count = p.bytes / p.size;
	p.begun_ns = (uint64_t)(kvb_seconds() * 1e9);
	p.memory = kvb_memory(p.objects * p.size);
	for (uint32_t i = 0; i < p.objects; i++)
		kvb_pattern(p.memory + i * p.size, p.size, i);
	p.fd = kvb_connect(p.host, p.port, true);
	while (p.puts < p.objects)
		put(&p);
	kvb_spent_begin(&spent, p.server_pid);
	for (uint64_t i = 0; i < count; i++)
		put(&p);
	kvb_spent_end(&spent, p.server_pid);
	(void)printf("{\"puts\": %llu, \"seconds\": %.6f, \"bytes_per_second\": %.0f, "
		     "\"cpu_seconds\": %.6f, \"server_cpu_seconds\": %.6f}\n",
		(unsigned long long)count, spent.seconds,
		count > 0 ? (double)(count * p.size) / spent.seconds : 0.0, spent.cpu_seconds,
		spent.server_cpu);
	(void)close(p.fd);
	return 0;
}
