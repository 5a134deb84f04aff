/*
 * support.c - two ends of a TLS connection in one thread, with a wire between them that tests own.
 */
#include "support.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SOCKET_BUFFER 4096
#define TURNS_MOST    4000000

/* --- certificates --- */

static EVP_PKEY *make_key(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");

	ck_assert_ptr_nonnull(key);
	return key;
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *extension;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ck_assert_ptr_nonnull(extension);
	ck_assert_int_eq(X509_add_ext(cert, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

static X509 *make_cert(const char *name, EVP_PKEY *key, X509 *issuer, EVP_PKEY *issuer_key,
	const char *names, long ends_in_s)
{
	X509 *cert = X509_new();
	X509_NAME *subject = X509_get_subject_name(cert);

	ck_assert_int_eq(X509_set_version(cert, 2), 1);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), names != NULL ? 2 : 1);
	X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
	X509_gmtime_adj(X509_getm_notAfter(cert), ends_in_s);
	X509_set_pubkey(cert, key);
	X509_NAME_add_entry_by_txt(
		subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	if (issuer == NULL)
		issuer = cert;
	X509_set_issuer_name(cert, X509_get_subject_name(issuer));
	add_extension(cert, issuer, NID_basic_constraints,
		names != NULL ? "critical,CA:FALSE" : "critical,CA:TRUE");
	if (names != NULL)
		add_extension(cert, issuer, NID_subject_alt_name, names);
	ck_assert_int_ne(X509_sign(cert, issuer_key, EVP_sha256()), 0);
	return cert;
}

static void write_cert(const char *path, X509 *cert)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(PEM_write_X509(file, cert), 1);
	fclose(file);
}

static void write_key(const char *path, EVP_PKEY *key, const char *passphrase)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(
		PEM_write_PrivateKey(file, key, passphrase != NULL ? EVP_aes_128_cbc() : NULL, NULL,
			0, NULL, (void *)(uintptr_t)passphrase),
		1);
	fclose(file);
}

void files_make_ending(struct files *files, long ends_in_s)
{
	EVP_PKEY *ca_key = make_key(), *key = make_key(), *other = make_key();
	X509 *ca = make_cert("kvway test authority", ca_key, NULL, ca_key, NULL, 86400);
	X509 *cert =
		make_cert("kvway test", key, ca, ca_key, "DNS:localhost,IP:127.0.0.1", ends_in_s);

	strcpy(files->folder, "/tmp/kvway-test-tls-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(files->folder));
	snprintf(files->ca, sizeof(files->ca), "%s/ca.crt", files->folder);
	snprintf(files->cert, sizeof(files->cert), "%s/server.crt", files->folder);
	snprintf(files->key, sizeof(files->key), "%s/server.key", files->folder);
	snprintf(files->other_key, sizeof(files->other_key), "%s/other.key", files->folder);
	snprintf(files->locked_key, sizeof(files->locked_key), "%s/locked.key", files->folder);
	write_cert(files->ca, ca);
	write_cert(files->cert, cert);
	write_key(files->key, key, NULL);
	write_key(files->other_key, other, NULL);
	write_key(files->locked_key, key, "secret");
	X509_free(ca);
	X509_free(cert);
	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(key);
	EVP_PKEY_free(other);
}

void files_make(struct files *files)
{
	files_make_ending(files, 86400);
}

void files_remove(const struct files *files)
{
	unlink(files->ca);
	unlink(files->cert);
	unlink(files->key);
	unlink(files->other_key);
	unlink(files->locked_key);
	rmdir(files->folder);
}

/* --- the wire --- */

/* Counts records whose type is application data; in TLS 1.3 the handshake's end looks so too. */
static void look(struct flow *flow, const unsigned char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		if (flow->left > 0) {
			flow->left--;
			continue;
		}
		flow->head[flow->header++] = data[i];
		if (flow->header < sizeof(flow->head))
			continue;
		flow->header = 0;
		flow->left = (size_t)flow->head[3] << 8 | flow->head[4];
		flow->records += flow->head[0] == 23;
	}
}

/* Moves up to flow->step bytes. True: some were moved, or an end was passed on. */
static bool flow_move(struct flow *flow, int from, int to)
{
	unsigned char data[65536];
	size_t want = flow->step < sizeof(data) ? flow->step : sizeof(data);
	ssize_t n, sent;

	if (want == 0 || flow->ended || from < 0 || to < 0)
		return false;
	n = recv(from, data, want, MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0) {
		(void)shutdown(to, SHUT_WR);
		flow->ended = true;
		return true;
	}
	if (flow->flip_at >= flow->passed && flow->flip_at - flow->passed < (size_t)n)
		data[flow->flip_at - flow->passed] ^= 0x40;
	sent = send(to, data, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent <= 0)
		return false;
	ck_assert_int_eq(recv(from, data, (size_t)sent, MSG_DONTWAIT), sent);
	look(flow, data, (size_t)sent);
	flow->passed += (size_t)sent;
	return true;
}

static void on_event(struct kvw_io *io)
{
	struct end *end = (struct end *)io;

	end->events++;
	if (!kvw_tls_ready(io) && !io->broken)
		end->early = true;
}

static void end_open(struct link *link, struct end *end)
{
	int pair[2], size = SOCKET_BUFFER;

	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(
			setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	memset(end, 0, sizeof(*end));
	ck_assert_int_eq(kvw_io_open(&end->io, &link->set, pair[0], on_event), KVW_OK);
	end->wire = pair[1];
}

void link_open(struct link *link, size_t step)
{
	memset(link, 0, sizeof(*link));
	ck_assert_int_eq(kvw_io_set_init(&link->set), KVW_OK);
	end_open(link, &link->a);
	end_open(link, &link->b);
	link->up.step = link->down.step = step;
	link->up.flip_at = link->down.flip_at = SIZE_MAX;
}

void link_close(struct link *link)
{
	kvw_io_close(&link->a.io, false);
	kvw_io_close(&link->b.io, false);
	if (link->a.wire >= 0)
		close(link->a.wire);
	if (link->b.wire >= 0)
		close(link->b.wire);
	kvw_io_set_finish(&link->set);
}

bool link_turn(struct link *link)
{
	size_t before = link->a.events + link->b.events;
	bool busy = kvw_io_set_busy(&link->set);
	bool moved;

	kvw_io_set_dispatch(&link->set);
	moved = flow_move(&link->up, link->a.wire, link->b.wire);
	moved = flow_move(&link->down, link->b.wire, link->a.wire) || moved;
	return moved || busy || link->a.events + link->b.events != before;
}

size_t link_settle(struct link *link)
{
	size_t turns = 0;

	while (link_turn(link))
		ck_assert_msg(++turns < TURNS_MOST, "it spins");
	return turns;
}

void link_begin(struct link *link, struct kvw_tls *client, struct kvw_tls *server)
{
	ck_assert_int_eq(kvw_tls_client_start(&link->a.io, client, "localhost"), KVW_OK);
	ck_assert_int_eq(kvw_tls_server_start(&link->b.io, server), KVW_OK);
	link_settle(link);
	ck_assert_msg(kvw_tls_ready(&link->a.io), "client: %s", kvw_tls_why(&link->a.io));
	ck_assert_msg(kvw_tls_ready(&link->b.io), "server: %s", kvw_tls_why(&link->b.io));
	ck_assert(!link->a.early && !link->b.early);
}
