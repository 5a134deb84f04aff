/* tls_test.c - handshakes, bodies and ends over a wire that cuts records anywhere. */
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

static struct files files;
static struct kvw_tls *client, *server;

static struct kvw_tls *make_server(const char *client_ca, bool only_1_3)
{
	const struct kvw_tls_server_options options = {
		.certificate = files.cert,
		.key = files.key,
		.client_ca = client_ca,
		.only_1_3 = only_1_3,
	};
	struct kvw_tls *tls = NULL;
	char why[200];

	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_OK);
	return tls;
}

static struct kvw_tls *make_client(const char *ca, bool insecure)
{
	const struct kvw_tls_client_options options = {.ca_file = ca, .insecure = insecure};
	struct kvw_tls *tls = NULL;
	char why[200];

	ck_assert_int_eq(kvw_tls_client_create(&options, why, sizeof(why), &tls), KVW_OK);
	return tls;
}

static void make_files(void)
{
	files_make(&files);
}

static void remove_files(void)
{
	files_remove(&files);
}

static void set_up(void)
{
	server = make_server(NULL, false);
	client = make_client(files.ca, false);
}

/* Two ends and the wire between them. A test opens it, with steps of so many bytes; tear_down()
 * closes it. */
static struct link l;
static bool opened;

static void open_link(size_t step)
{
	link_open(&l, step);
	opened = true;
}

static void close_link(void)
{
	if (opened)
		link_close(&l);
	opened = false;
}

static void tear_down(void)
{
	close_link();
	kvw_tls_destroy(client);
	kvw_tls_destroy(server);
}

static ssize_t read_some(struct end *end, void *data, size_t len)
{
	struct iovec iov = {data, len};

	return kvw_io_readv(&end->io, &iov, 1, len);
}

static ssize_t write_text(struct end *end, const char *text)
{
	struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};

	return kvw_io_writev(&end->io, &iov, 1);
}

/* The end has received exactly this, and nothing more is there. */
static void expect_text(struct end *end, const char *text)
{
	char data[256];

	ck_assert(end->io.readable);
	ck_assert_int_eq(read_some(end, data, sizeof(data)), (ssize_t)strlen(text));
	ck_assert_mem_eq(data, text, strlen(text));
	ck_assert_int_eq(read_some(end, data, sizeof(data)), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert(!end->io.readable);
}

static const size_t steps[] = {1, 2, 3, 5, 100, 1000, 65536};
#define STEP_COUNT ((int)(sizeof(steps) / sizeof(steps[0])))

static void open_and_begin(size_t step)
{
	open_link(step);
	link_begin(&l, client, server);
}

/* --- handshakes --- */

START_TEST(test_handshake_however_cut)
{
	size_t events;

	open_and_begin(steps[_i]);
	/* Session tickets have arrived and are nothing to read. */
	kvw_tls_settle(&l.a.io);
	ck_assert(!l.a.io.readable);
	kvw_tls_settle(&l.b.io);
	ck_assert(!l.b.io.readable);
	events = l.a.events + l.b.events;
	ck_assert_uint_eq(link_settle(&l), 0);
	ck_assert_uint_eq(l.a.events + l.b.events, events);
	ck_assert_int_eq(write_text(&l.a, "question"), 8);
	link_settle(&l);
	expect_text(&l.b, "question");
	ck_assert_int_eq(write_text(&l.b, "answer"), 6);
	link_settle(&l);
	expect_text(&l.a, "answer");
}
END_TEST

START_TEST(test_nothing_before_the_handshake)
{
	char byte;

	open_link(0);
	ck_assert(kvw_tls_ready(&l.a.io)); /* plain: always */
	ck_assert_int_eq(kvw_tls_client_start(&l.a.io, client, "localhost"), KVW_OK);
	ck_assert(!kvw_tls_ready(&l.a.io));
	link_settle(&l);
	ck_assert_uint_eq(l.a.events, 0);
	ck_assert_int_eq(write_text(&l.a, "x"), -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(read_some(&l.a, &byte, 1), -1);
	ck_assert_int_eq(errno, EAGAIN);
}
END_TEST

static void expect_failure(struct kvw_tls *c, struct kvw_tls *s, const char *host, const char *says)
{
	struct link link;
	char byte;

	link_open(&link, 700);
	ck_assert_int_eq(kvw_tls_client_start(&link.a.io, c, host), KVW_OK);
	ck_assert_int_eq(kvw_tls_server_start(&link.b.io, s), KVW_OK);
	link_settle(&link);
	ck_assert(!kvw_tls_ready(&link.a.io));
	ck_assert(link.a.io.broken);
	ck_assert_uint_ge(link.a.events, 1);
	ck_assert_ptr_nonnull(kvw_tls_why(&link.a.io));
	ck_assert_msg(strstr(kvw_tls_why(&link.a.io), says) != NULL, "%s", kvw_tls_why(&link.a.io));
	ck_assert_int_eq(read_some(&link.a, &byte, 1), -1);
	ck_assert_int_ne(errno, EAGAIN);
	/* The client sent the server an alert. */
	ck_assert(!kvw_tls_ready(&link.b.io) || link.b.io.broken);
	link_close(&link);
}

START_TEST(test_certificates_are_verified)
{
	struct kvw_tls *system = make_client(NULL, false), *any = make_client(NULL, true);

	expect_failure(client, server, "example.com",
		"TLS: certificate verify failed (hostname mismatch: example.com expected)");
	expect_failure(client, server, "127.0.0.2",
		"TLS: certificate verify failed (IP address mismatch: 127.0.0.2 expected)");
	expect_failure(client, server, "::1", "mismatch");
	expect_failure(system, server, "localhost", "TLS: certificate verify failed (");
	open_link(700);
	ck_assert_int_eq(kvw_tls_client_start(&l.a.io, client, "127.0.0.1"), KVW_OK);
	ck_assert_int_eq(kvw_tls_server_start(&l.b.io, server), KVW_OK);
	link_settle(&l);
	ck_assert(kvw_tls_ready(&l.a.io) && kvw_tls_ready(&l.b.io));
	close_link();
	open_link(700);
	link_begin(&l, any, server);
	close_link();
	kvw_tls_destroy(system);
	kvw_tls_destroy(any);
}
END_TEST

/* In TLS 1.3 the client has finished when the server refuses it. */
START_TEST(test_client_without_certificate)
{
	struct kvw_tls *strict = make_server(files.ca, true);
	char byte;

	open_link(700);
	ck_assert_int_eq(kvw_tls_client_start(&l.a.io, client, "localhost"), KVW_OK);
	ck_assert_int_eq(kvw_tls_server_start(&l.b.io, strict), KVW_OK);
	link_settle(&l);
	ck_assert(l.b.io.broken && !kvw_tls_ready(&l.b.io));
	ck_assert_int_eq(read_some(&l.a, &byte, 1), -1);
	ck_assert_ptr_nonnull(strstr(kvw_tls_why(&l.a.io), "certificate required"));
	close_link();
	kvw_tls_destroy(strict);
}
END_TEST

START_TEST(test_noise_instead_of_a_handshake)
{
	static const char *const noise[] = {"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01", "\x80\x80\x01\x03",
		"\x16\x03\x03\x00\x05\x01\x00\x00\x01\x00"};

	for (size_t i = 0; i < sizeof(noise) / sizeof(noise[0]); i++) {
		open_link(3);
		ck_assert_int_eq(kvw_tls_server_start(&l.b.io, server), KVW_OK);
		ck_assert_int_gt(write_text(&l.a, noise[i]), 0);
		kvw_io_close(&l.a.io, false);
		link_settle(&l);
		ck_assert(l.b.io.broken && !kvw_tls_ready(&l.b.io));
		ck_assert_uint_ge(l.b.events, 1);
		ck_assert_ptr_nonnull(kvw_tls_why(&l.b.io));
		close_link();
	}
}
END_TEST

START_TEST(test_contexts_name_the_bad_file)
{
	struct kvw_tls_server_options options = {.certificate = "/absent", .key = files.key};
	struct kvw_tls_client_options trust = {.ca_file = files.key};
	struct kvw_tls *tls = NULL;
	char why[200];

	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_EINVAL);
	ck_assert_str_eq(why, "certificate /absent: No such file or directory");
	options.certificate = files.cert;
	options.key = files.other_key;
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "key values mismatch"));
	options.key = files.locked_key; /* must not ask on a terminal */
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_EINVAL);
	options.key = files.key;
	options.client_ca = files.key;
	ck_assert_int_eq(kvw_tls_server_create(&options, why, sizeof(why), &tls), KVW_EINVAL);
	ck_assert_int_eq(kvw_tls_client_create(&trust, why, sizeof(why), &tls), KVW_EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "authorities "));
	ck_assert_ptr_null(tls);
	kvw_tls_destroy(NULL);
}
END_TEST

/* --- bodies --- */

#define BODY_SIZE ((size_t)600 << 10)

/* One direction of a transfer. Byte i of it is a function of i and seed. */
struct body {
	unsigned seed;
	size_t size, sent, received;
	char *buffer; /* sent bytes are copied here first: a new place for each attempt */
};

static char byte_at(const struct body *body, size_t i)
{
	return (char)((i * 2654435761u + body->seed) >> 13 ^ i);
}

/* Offers what is left, cut at random, from a place that differs from attempt to attempt. */
static bool send_body(struct body *body, struct end *end)
{
	struct iovec iov[64];
	size_t left = body->size - body->sent, at = 0;
	size_t offer = left < 100000 ? left : 100000, shift = (size_t)(rand() % 64);
	int count = 0;
	ssize_t n;

	if (left == 0 || !end->io.writable)
		return false;
	for (size_t i = 0; i < offer; i++)
		body->buffer[shift + i] = byte_at(body, body->sent + i);
	while (at < offer && count < 64) {
		size_t piece = (size_t)(rand() % (count == 63 ? 1 : 20000));

		if (count == 63 || piece > offer - at)
			piece = offer - at;
		iov[count++] = (struct iovec){body->buffer + shift + at, piece};
		at += piece;
	}
	n = kvw_io_writev(&end->io, iov, count);
	memset(body->buffer, 0x55, 100064); /* a later read of it finds nonsense */
	if (n < 0) {
		ck_assert_int_eq(errno, EAGAIN);
		ck_assert(!end->io.writable);
		return false;
	}
	body->sent += (size_t)n;
	return true;
}

static bool receive_body(struct body *body, struct end *end)
{
	char first[3000], second[40000];
	struct iovec iov[2] = {{first, (size_t)(rand() % 3000) + 1},
		{second, (size_t)(rand() % 40000) + 1}};
	ssize_t n;

	if (!end->io.readable)
		return false;
	n = kvw_io_readv(&end->io, iov, 2, iov[0].iov_len + iov[1].iov_len);
	if (n < 0) {
		ck_assert_int_eq(errno, EAGAIN);
		ck_assert(!end->io.readable);
		return false;
	}
	ck_assert_int_gt(n, 0);
	for (ssize_t i = 0; i < n; i++) {
		size_t in_first = iov[0].iov_len;
		char got = (size_t)i < in_first ? first[i] : second[(size_t)i - in_first];

		ck_assert_int_eq(got, byte_at(body, body->received++));
	}
	return true;
}

/* Both at once, and reading lags behind. */
START_TEST(test_bodies_both_ways)
{
	struct body up = {.seed = 1, .size = steps[_i] < 10 ? 40000 : BODY_SIZE};
	struct body down = {.seed = 77, .size = up.size};
	size_t idle = 0;

	srand((unsigned)_i + 1);
	up.buffer = malloc(100064);
	down.buffer = malloc(100064);
	open_and_begin(steps[_i]);
	while (up.received < up.size || down.received < down.size) {
		bool moved = link_turn(&l);

		moved = send_body(&up, &l.a) || moved;
		moved = send_body(&down, &l.b) || moved;
		if (rand() % 3 == 0 || idle > 0) {
			moved = receive_body(&up, &l.b) || moved;
			moved = receive_body(&down, &l.a) || moved;
		}
		idle = moved ? 0 : idle + 1;
		ck_assert_msg(idle < 4, "stuck: up %zu/%zu down %zu/%zu of %zu", up.received,
			up.sent, down.received, down.sent, up.size);
	}
	ck_assert(!l.a.early && !l.b.early);
	/* Quiet afterwards: nothing queued, no events. */
	link_settle(&l);
	ck_assert_uint_eq(link_settle(&l), 0);
	close_link();
	free(up.buffer);
	free(down.buffer);
}
END_TEST

START_TEST(test_small_pieces_share_a_record)
{
	char head[300], line[10], body[9000], got[20000];
	struct iovec iov[] = {{head, sizeof(head)}, {line, 0}, {line, sizeof(line)},
		{body, sizeof(body)}};
	size_t total = sizeof(head) + sizeof(line) + sizeof(body), before;

	memset(head, 'h', sizeof(head));
	memset(line, 'l', sizeof(line));
	memset(body, 'b', sizeof(body));
	open_and_begin(65536);
	before = l.up.records;
	/* The socket may take it in two goes, the record is one. */
	while (kvw_io_writev(&l.a.io, iov, 4) < 0) {
		ck_assert_int_eq(errno, EAGAIN);
		link_turn(&l);
	}
	link_settle(&l);
	ck_assert_uint_eq(l.up.records - before, 1);
	ck_assert_int_eq(read_some(&l.b, got, sizeof(got)), (ssize_t)total);
	ck_assert_int_eq(got[0], 'h');
	ck_assert_int_eq(got[sizeof(head)], 'l');
	ck_assert_int_eq(got[total - 1], 'b');
}
END_TEST

START_TEST(test_empty_write)
{
	struct iovec none = {NULL, 0};

	open_and_begin(65536);
	ck_assert_int_eq(kvw_io_writev(&l.a.io, &none, 1), 0);
	ck_assert_int_eq(kvw_io_writev(&l.a.io, NULL, 0), 0);
	link_settle(&l);
	ck_assert(!l.b.io.readable);
}
END_TEST

/* --- a peer that does what ours does not --- */

/* OpenSSL itself on the wire's side of end b. */
static SSL *open_peer(SSL_CTX **ctx, int version)
{
	SSL *ssl;

	*ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_max_proto_version(*ctx, version);
	ssl = SSL_new(*ctx);
	SSL_set_fd(ssl, l.b.wire);
	SSL_set_connect_state(ssl);
	ck_assert_int_eq(kvw_tls_server_start(&l.b.io, server), KVW_OK);
	for (int i = 0; i < 1000 && SSL_do_handshake(ssl) != 1; i++)
		kvw_io_set_dispatch(&l.set);
	kvw_io_set_dispatch(&l.set);
	ck_assert(kvw_tls_ready(&l.b.io));
	return ssl;
}

static void close_peer(SSL *ssl, SSL_CTX *ctx)
{
	SSL_free(ssl);
	SSL_CTX_free(ctx);
}

/* The peer asks for new keys while we are blocked in writing: both directions go on. */
START_TEST(test_key_update_while_blocked)
{
	struct body down = {.seed = 5, .size = BODY_SIZE, .buffer = malloc(100064)};
	char data[30000];
	SSL_CTX *ctx;
	SSL *ssl;
	size_t asked = 0;

	open_link(0);
	ssl = open_peer(&ctx, TLS1_3_VERSION);
	while (down.received < down.size) {
		int n;

		while (send_body(&down, &l.b))
			;
		if (down.received / 50000 == asked) {
			ck_assert_int_eq(SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
			ck_assert_int_eq(SSL_write(ssl, "ask", 3), 3);
			asked++;
		}
		kvw_io_set_dispatch(&l.set);
		if (l.b.io.readable)
			expect_text(&l.b, "ask");
		n = SSL_read(ssl, data, sizeof(data));
		for (int i = 0; i < n; i++)
			ck_assert_int_eq(data[i], byte_at(&down, down.received++));
		ck_assert(n > 0 || SSL_get_error(ssl, n) == SSL_ERROR_WANT_READ);
	}
	ck_assert_uint_ge(asked, 10);
	free(down.buffer);
	close_peer(ssl, ctx);
}
END_TEST

START_TEST(test_renegotiation_is_refused)
{
	SSL_CTX *ctx;
	SSL *ssl;
	char byte;
	int n = 0;

	open_link(0);
	ssl = open_peer(&ctx, TLS1_2_VERSION);
	ck_assert_int_eq(SSL_renegotiate(ssl), 1);
	for (int i = 0; i < 20; i++) {
		n = SSL_do_handshake(ssl);
		kvw_io_set_dispatch(&l.set);
	}
	ck_assert_int_le(n, 0);
	/* Refused by a warning: the connection itself may go on, or end; it does not hang or spin. */
	ck_assert(!kvw_io_set_busy(&l.set));
	ck_assert_int_eq(read_some(&l.b, &byte, 1), -1);
	close_peer(ssl, ctx);
}
END_TEST

/* A peer may ask for new keys 32 times with a MiB of payload. */
START_TEST(test_key_updates_without_end)
{
	SSL_CTX *ctx;
	SSL *ssl;
	char data[16];
	int asked = 0;

	open_link(0);
	ssl = open_peer(&ctx, TLS1_3_VERSION);
	for (; asked < 100 && !l.b.io.broken; asked++) {
		ck_assert_int_eq(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
		ck_assert_int_eq(SSL_do_handshake(ssl), 1);
		kvw_io_set_dispatch(&l.set);
		if (asked < 32)
			ck_assert(!l.b.io.broken);
	}
	ck_assert_int_eq(asked, 33);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), -1);
	ck_assert_ptr_nonnull(strstr(kvw_tls_why(&l.b.io), "too many"));
	ck_assert_uint_eq(kvw_tls_floods(server), 1);
	close_peer(ssl, ctx);
}
END_TEST

/* --- ends --- */

START_TEST(test_clean_end)
{
	char data[16];

	open_and_begin(1);
	ck_assert_int_eq(write_text(&l.a, "last"), 4);
	kvw_io_shutdown(&l.a.io);
	link_settle(&l);
	ck_assert_int_eq(read_some(&l.b, data, 4), 4);
	link_settle(&l);
	while (read_some(&l.b, data, sizeof(data)) < 0) {
		ck_assert_int_eq(errno, EAGAIN);
		ck_assert(link_turn(&l));
	}
	ck_assert(l.b.io.peer_closed);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), 0);
	ck_assert_ptr_null(kvw_tls_why(&l.b.io));
}
END_TEST

/* close_notify without a FIN behind it: seen although neither end reads. */
START_TEST(test_close_notify_alone)
{
	SSL_CTX *ctx;
	SSL *ssl;
	char data[16];

	open_link(0);
	ssl = open_peer(&ctx, TLS1_3_VERSION);
	ck_assert_int_eq(SSL_shutdown(ssl), 0);
	kvw_io_set_dispatch(&l.set);
	ck_assert(l.b.io.peer_closed && l.b.io.readable && !l.b.io.broken);
	/* We may still send. */
	ck_assert_int_eq(write_text(&l.b, "answer"), 6);
	ck_assert_int_eq(SSL_read(ssl, data, sizeof(data)), 6);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), 0);
	close_peer(ssl, ctx);
}
END_TEST

/* Reading goes on after our half of the close. */
START_TEST(test_half_closed)
{
	char data[16];

	open_and_begin(65536);
	l.up.step = 0;
	ck_assert_int_eq(write_text(&l.a, "late"), 4);
	kvw_io_shutdown(&l.b.io);
	kvw_io_shutdown(&l.b.io);
	link_settle(&l);
	l.up.step = 10;
	while (!l.b.io.readable)
		ck_assert(link_turn(&l));
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), 4);
	ck_assert_int_eq(write_text(&l.b, "no"), -1);
	ck_assert_int_ne(errno, EAGAIN);
}
END_TEST

/* The peer's process dies: FIN or reset, but no close_notify. What came before is still read. */
START_TEST(test_abrupt_end)
{
	char data[16];

	open_and_begin(65536);
	ck_assert_int_eq(write_text(&l.a, "part"), 4);
	link_turn(&l);
	close(l.b.wire);
	l.b.wire = -1;
	link_settle(&l);
	ck_assert(l.b.io.broken);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), 4);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), -1);
	ck_assert_int_eq(errno, ECONNRESET);
	ck_assert_ptr_nonnull(strstr(kvw_tls_why(&l.b.io), "close_notify"));
	ck_assert_int_eq(write_text(&l.b, "x"), -1);
	ck_assert_int_ne(errno, EAGAIN);
}
END_TEST

/* An answer that is cut on purpose must not end like a whole one. */
START_TEST(test_reset_sends_no_close_notify)
{
	char data[16];

	open_and_begin(65536);
	ck_assert_int_eq(write_text(&l.b, "part"), 4);
	kvw_io_close(&l.b.io, true);
	link_settle(&l);
	ck_assert_int_eq(read_some(&l.a, data, sizeof(data)), 4);
	ck_assert_int_eq(read_some(&l.a, data, sizeof(data)), -1);
	ck_assert_int_eq(errno, ECONNRESET);
}
END_TEST

/* A close with a record half on its way neither blocks nor pretends a clean end. */
START_TEST(test_close_while_blocked)
{
	static char much[200000];
	struct iovec iov = {much, sizeof(much)};
	char data[16384];
	ssize_t n;

	open_and_begin(65536);
	l.up.step = 0;
	while (kvw_io_writev(&l.a.io, &iov, 1) > 0)
		;
	ck_assert(!l.a.io.writable);
	kvw_io_close(&l.a.io, false);
	l.up.step = 65536;
	do {
		link_settle(&l);
		n = read_some(&l.b, data, sizeof(data));
	} while (n > 0);
	ck_assert_int_eq(n, -1);
}
END_TEST

START_TEST(test_damaged_record)
{
	char data[16];

	open_and_begin(65536);
	ck_assert_int_eq(write_text(&l.a, "good"), 4);
	link_settle(&l);
	expect_text(&l.b, "good");
	l.up.flip_at = l.up.passed + 10;
	ck_assert_int_eq(write_text(&l.a, "damaged"), 7);
	link_settle(&l);
	ck_assert(l.b.io.broken && l.b.io.readable);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_int_eq(read_some(&l.b, data, sizeof(data)), -1);
	ck_assert_int_eq(write_text(&l.b, "x"), -1);
}
END_TEST

/* Any single byte of a whole conversation damaged: never a wrong byte, a crash or a spin. */
START_TEST(test_any_byte_damaged)
{
	char data[16];
	ssize_t n;

	for (size_t at = 0; at < 3000; at += 13) {
		open_link(500);
		l.down.flip_at = at;
		ck_assert_int_eq(kvw_tls_client_start(&l.a.io, client, "localhost"), KVW_OK);
		ck_assert_int_eq(kvw_tls_server_start(&l.b.io, server), KVW_OK);
		link_settle(&l);
		if (kvw_tls_ready(&l.b.io) && !l.b.io.broken)
			(void)write_text(&l.b, "text");
		link_settle(&l);
		if (kvw_tls_ready(&l.a.io)) {
			n = read_some(&l.a, data, sizeof(data));
			ck_assert(n == -1 || (n == 4 && memcmp(data, "text", 4) == 0));
		}
		close_link();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("tls");
	TCase *handshakes = tcase_create("handshakes"), *bodies = tcase_create("bodies");
	TCase *ends = tcase_create("ends");
	TCase *cases[] = {handshakes, bodies, ends};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tcase_add_unchecked_fixture(cases[i], make_files, remove_files);
		tcase_add_checked_fixture(cases[i], set_up, tear_down);
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_add_loop_test(handshakes, test_handshake_however_cut, 0, STEP_COUNT);
	tcase_add_test(handshakes, test_nothing_before_the_handshake);
	tcase_add_test(handshakes, test_certificates_are_verified);
	tcase_add_test(handshakes, test_client_without_certificate);
	tcase_add_test(handshakes, test_noise_instead_of_a_handshake);
	tcase_add_test(handshakes, test_contexts_name_the_bad_file);
	tcase_add_loop_test(bodies, test_bodies_both_ways, 0, STEP_COUNT);
	tcase_add_test(bodies, test_small_pieces_share_a_record);
	tcase_add_test(bodies, test_empty_write);
	tcase_add_test(bodies, test_key_update_while_blocked);
	tcase_add_test(bodies, test_renegotiation_is_refused);
	tcase_add_test(bodies, test_key_updates_without_end);
	tcase_add_test(ends, test_clean_end);
	tcase_add_test(ends, test_close_notify_alone);
	tcase_add_test(ends, test_half_closed);
	tcase_add_test(ends, test_abrupt_end);
	tcase_add_test(ends, test_reset_sends_no_close_notify);
	tcase_add_test(ends, test_close_while_blocked);
	tcase_add_test(ends, test_damaged_record);
	tcase_add_test(ends, test_any_byte_damaged);
	return run_suite(suite);
}
