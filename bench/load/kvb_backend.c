/*
 * kvb_backend.c - the backends of kvb-load as a program of their own.
 *
 * For a proxy benchmark whose clients are another program (wrk, say): four workers by default that
 * answer every POST with the same small completion.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/load/backend.h"

int main(int argc, char **argv)
{
	struct kvb_reactor reactor;
	struct kvb_backend *backend = NULL;
	bool help = argc == 2 && strcmp(argv[1], "--help") == 0;
	long port = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
	long count = argc > 2 ? strtol(argv[2], NULL, 10) : 4;

	if (help || argc < 2 || argc > 3 || port < 0 || count < 1 || port + count > 65536) {
		fputs("usage: kvb-backend PORT [COUNT]\n\n"
		      "Answers as COUNT (default 4) workers on 127.0.0.1, ports from PORT on; PORT "
		      "0\n"
		      "takes free ones. Runs until it is ended.\n",
			help ? stdout : stderr);
		return help ? 0 : 2;
	}
	if (kvb_reactor_init(&reactor) != KVW_OK ||
		kvb_backend_create(&reactor, "127.0.0.1", (uint16_t)port, (unsigned)count,
			&backend) != KVW_OK) {
		fprintf(stderr, "kvb-backend: port %ld: %s\n", port, strerror(errno));
		return 1;
	}
	for (unsigned i = 0; i < (unsigned)count; i++)
		printf("worker %u http://127.0.0.1:%u\n", i, kvb_backend_port(backend, i));
	fflush(stdout);
	for (;;)
		kvb_reactor_turn(&reactor, -1);
}
