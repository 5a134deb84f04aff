/*
 * loop_stream.c - one loopback TCP stream at its fastest, the peer of a PUT into kvtierd.
 *
 * A sender and a receiver, each a process on a core of its own. The sender's bytes lie in as much
 * memory as the objects of daemon_put, and leave in pieces of an object's size; the receiver only
 * receives, into one buffer of that size. It parses nothing and answers nothing; one byte comes back at
 * the end.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/l2/spent.h"
#include "bench/l2/wire.h"

struct stream {
	uint64_t size, bytes;
	uint32_t objects;
	int sender_core, receiver_core; /* -1: anywhere */
};

static void parse(struct stream *s, int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "c:k:b:S:R:")) != -1) {
		switch (option) {
		case 'c':
			s->size = strtoull(optarg, NULL, 10);
			break;
		case 'k':
			s->objects = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'b':
			s->bytes = strtoull(optarg, NULL, 10);
			break;
		case 'S':
			s->sender_core = (int)strtol(optarg, NULL, 10);
			break;
		case 'R':
			s->receiver_core = (int)strtol(optarg, NULL, 10);
			break;
		default:
			s->size = 0;
		}
	}
	if (s->size == 0 || s->objects == 0 || s->bytes < s->size)
		kvb_fail("usage: loop_stream [-c PIECE BYTES] [-k PIECES IN MEMORY] [-b BYTES] "
			 "[-S SENDER'S CORE] [-R RECEIVER'S CORE]");
	s->bytes -= s->bytes % s->size;
}

static void stay_on(int core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	if (core < 0)
		return;
	CPU_SET((size_t)core, &set);
	if (sched_setaffinity(0, sizeof(set), &set) != 0)
		kvb_fail("core %d: %s", core, strerror(errno));
}

static void receive(const struct stream *s, int listener)
{
	char *buffer = kvb_memory(s->size);
	int fd = accept(listener, NULL, NULL);
	uint64_t at = 0;

	if (fd < 0)
		kvb_fail("accept: %s", strerror(errno));
	for (uint64_t got = 0; got < s->bytes;) {
		ssize_t n = recv(fd, buffer + at, s->size - at, 0);

		if (n <= 0)
			kvb_fail("receiving: %s", n == 0 ? "closed" : strerror(errno));
		got += (uint64_t)n;
		at = (at + (uint64_t)n) % s->size;
	}
	if (send(fd, "", 1, MSG_NOSIGNAL) != 1)
		kvb_fail("sending: %s", strerror(errno));
}

static void send_stream(const struct stream *s, uint16_t port, struct kvb_spent *spent)
{
	char *memory = kvb_memory(s->objects * s->size), end;
	int fd = kvb_connect("127.0.0.1", port, true);

	for (uint32_t i = 0; i < s->objects; i++)
		kvb_pattern(memory + i * s->size, s->size, i);
	kvb_spent_begin(spent, 0);
	for (uint64_t i = 0; i < s->bytes / s->size; i++) {
		struct iovec piece = {memory + i % s->objects * s->size, s->size};

		kvb_send_all(fd, &piece, 1);
	}
	if (recv(fd, &end, 1, 0) != 1)
		kvb_fail("the receiver is gone");
	kvb_spent_end(spent, 0);
	(void)close(fd);
}

int main(int argc, char **argv)
{
	struct stream s = {.size = 4u << 20,
		.bytes = 1u << 30,
		.objects = 64,
		.sender_core = -1,
		.receiver_core = -1};
	struct kvb_spent spent;
	struct rusage receiver;
	uint16_t port;
	int listener, status;
	pid_t child;

	parse(&s, argc, argv);
	listener = kvb_listen(&port);
	child = fork();
	if (child < 0)
		kvb_fail("fork: %s", strerror(errno));
	stay_on(child == 0 ? s.receiver_core : s.sender_core);
	if (child == 0) {
		receive(&s, listener);
		return 0;
	}
	send_stream(&s, port, &spent);
	if (waitpid(child, &status, 0) != child || status != 0 ||
		getrusage(RUSAGE_CHILDREN, &receiver) != 0)
		kvb_fail("the receiver failed");
	(void)printf("{\"seconds\": %.6f, \"bytes_per_second\": %.0f, \"cpu_seconds\": %.6f, "
		     "\"server_cpu_seconds\": %.6f}\n",
		spent.seconds, (double)s.bytes / spent.seconds, spent.cpu_seconds,
		(double)(receiver.ru_utime.tv_sec + receiver.ru_stime.tv_sec) +
			(double)(receiver.ru_utime.tv_usec + receiver.ru_stime.tv_usec) * 1e-6);
	(void)close(listener);
	return 0;
}
