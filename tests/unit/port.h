/*
 * port.h - a port that stays a test's own while no server listens there.
 */
#ifndef TESTS_UNIT_PORT_H
#define TESTS_UNIT_PORT_H

#include <arpa/inet.h>
#include <check.h>
#include <stdint.h>
#include <sys/socket.h>

/* Returns a free TCP port. The socket in *kept, which the caller closes, is bound to it without listening: the
 * kernel gives the port to no other program, while a server that sets SO_REUSEADDR may listen. */
static inline uint16_t keep_port(int *kept)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
	socklen_t len = sizeof(address);
	const int on = 1;

	*kept = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(*kept, 0);
	ck_assert_int_eq(setsockopt(*kept, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	ck_assert_int_eq(bind(*kept, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(getsockname(*kept, (struct sockaddr *)&address, &len), 0);
	return ntohs(address.sin_port);
}

#endif
