/* server_scene.c - a server over fake objects, and a client of plain sockets, for tests. */
#include "server_scene.h"

#include <arpa/inet.h>

#define ANSWER_MOST ((size_t)256 << 10)

void scene_init(struct scene *s, const char *yaml)
{
	char why[KVT_REASON_BYTES], *report = NULL;

	memset(s, 0, sizeof(*s));
	s->objects = fake_create();
	kvt_daemon_config_init(&s->config);
	s->config.loops = 2;
	if (yaml != NULL)
		ck_assert_msg(kvt_daemon_config_read(
				      &s->config, "t", yaml, strlen(yaml), &report) == KVT_OK,
			"%s", report);
	s->config.listen = "127.0.0.1:0";
	s->config.admin = "127.0.0.1:0";
	ck_assert_msg(kvt_server_start(&(struct kvt_server_options){&s->config, s->objects,
					       fake_segment(s->objects)},
			      why, &s->server) == KVT_OK,
		"%s", why);
}

void scene_finish(struct scene *s)
{
	kvt_server_destroy(s->server);
	ck_assert_uint_eq(fake_puts(s->objects), 0);
	kvt_daemon_config_finish(&s->config);
	fake_destroy(s->objects);
}

int dial(const char *address)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct timeval patience = {.tv_sec = 20};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	to.sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1));
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

void say_bytes(int fd, const void *bytes, size_t len)
{
	ck_assert_int_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
}

void say(int fd, const char *text)
{
	say_bytes(fd, text, strlen(text));
}

/* One answer, head and body; "" if the server closed. */
char *hear(int fd)
{
	char *text = calloc(1, ANSWER_MOST), *end = NULL, *length;
	size_t have = 0, want = 0;

	while (have + 1 < ANSWER_MOST && (want == 0 || have < want)) {
		ssize_t n = recv(fd, text + have, want == 0 ? 1 : want - have, 0);

		if (n <= 0)
			break;
		have += (size_t)n;
		end = want == 0 ? strstr(text, "\r\n\r\n") : end;
		if (want == 0 && end != NULL) {
			length = strstr(text, "Content-Length: ");
			want = have + (length == NULL ? 0 : strtoul(length + 16, NULL, 10));
		}
	}
	return text;
}

void expect_close(int fd)
{
	char byte;

	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

void put_head(int fd, const char *target, size_t bytes)
{
	char head[4096];

	snprintf(head, sizeof(head),
		"PUT %s HTTP/1.1\r\nHost: h\r\nContent-Length: %zu\r\nAccept: */*\r\n\r\n", target,
		bytes);
	say(fd, head);
}

void put(int fd, const char *target, const char *bytes, size_t len)
{
	put_head(fd, target, len);
	say_bytes(fd, bytes, len);
}

void ask(int fd, const char *method, const char *target)
{
	char head[8192];

	snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		method, target);
	say(fd, head);
}

/* Follows offsets of a lease's answer through the fake's memory. */
void check_lease(struct scene *s, const char *heard, const char *bytes, size_t len)
{
	const char *at = heard;
	size_t done = 0;

	while ((at = strstr(at, "{\"offset\":")) != NULL) {
		unsigned long long offset, here;

		ck_assert_int_eq(sscanf(at, "{\"offset\":%llu,\"len\":%llu}", &offset, &here), 2);
		ck_assert_uint_le(done + here, len);
		ck_assert(fake_holds(s->objects, offset, bytes + done, here));
		done += here;
		at++;
	}
	ck_assert_uint_eq(done, len);
}

char *pattern(size_t len, unsigned seed)
{
	char *bytes = malloc(len);

	for (size_t i = 0; i < len; i++) {
		seed = seed * 1103515245u + 12345u;
		bytes[i] = (char)(seed >> 16);
	}
	return bytes;
}
