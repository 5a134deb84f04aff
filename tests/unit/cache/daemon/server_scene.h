/*
 * server_scene.h - a server over fake objects, and a client of plain sockets, for tests.
 */
#ifndef SERVER_SCENE_H
#define SERVER_SCENE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fake_objects.h"
#include "daemon/server.h"

/* A running server. */
struct scene {
	struct kvt_objects *objects;
	struct kvt_daemon_config config;
	struct kvt_server *server;
};

void scene_init(struct scene *s, const char *yaml);
void scene_finish(struct scene *s);
int dial(const char *address);
void say_bytes(int fd, const void *bytes, size_t len);
void say(int fd, const char *text);
/* One answer, head and body; what came of it if the server closed. To be freed. */
char *hear(int fd);
void expect_close(int fd);
void put_head(int fd, const char *target, size_t bytes);
void put(int fd, const char *target, const char *bytes, size_t len);
void ask(int fd, const char *method, const char *target);
/* The offsets of a lease's answer lead to these bytes. */
void check_lease(struct scene *s, const char *heard, const char *bytes, size_t len);
char *pattern(size_t len, unsigned seed);

#define EXPECT(fd, status, part)                                                                   \
	do {                                                                                       \
		char *answer_ = hear(fd);                                                          \
		ck_assert_msg(                                                                     \
			strncmp(answer_, "HTTP/1.1 " status, strlen("HTTP/1.1 " status)) == 0 &&   \
				strstr(answer_, part) != NULL,                                     \
			"expected %s and %s in: %s", status, part, answer_);                       \
		free(answer_);                                                                     \
	} while (0)

/* Waits until it holds; twenty seconds are for ever. */
#define UNTIL(condition)                                                                           \
	do {                                                                                       \
		int64_t end = kvw_clock_ns() + 20 * KVW_NS_PER_S;                                  \
		while (!(condition) && kvw_clock_ns() < end)                                       \
			usleep(2000);                                                              \
		ck_assert(condition);                                                              \
	} while (0)

#endif
