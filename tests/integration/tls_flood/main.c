/*
 * main.c - tls-flood PORT renegotiation|keys COUNT: a client that asks for a new handshake again and again.
 *
 * `renegotiation` (TLS 1.2): OpenSSL's client gives up when the first one is refused. So after the handshake the records
 * are made here, with the session's keys: each is the beginning of a ClientHello, which is all that a server looks at
 * before it refuses. `keys` (TLS 1.3): key updates, each of which asks for one in return.
 *
 * It takes what comes back, so that the server is never the one that waits, and says
 * `ended|open SENT BACK`: whether the server has ended the connection, records sent, bytes that came back.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECORD (5 + 8 + 4 + 16) /* head, nonce, the hello's head, tag */
#define BATCH  100

struct flood {
	int fd;
	SSL *ssl;
	EVP_CIPHER_CTX *cipher;
	unsigned char iv[4];
	unsigned long sequence; /* of the next record */
	unsigned long sent, back;
};

static void need(int good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "tls-flood: %s\n", what);
	exit(2);
}

static void connect_to(struct flood *f, int port, int version)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	need(f->fd >= 0 && connect(f->fd, (struct sockaddr *)&to, sizeof(to)) == 0, "cannot connect");
	need(ctx != NULL && SSL_CTX_set_min_proto_version(ctx, version) == 1 &&
			SSL_CTX_set_max_proto_version(ctx, version) == 1 &&
			SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM+AES128") == 1,
		"no context");
	f->ssl = SSL_new(ctx);
	need(f->ssl != NULL && SSL_set_fd(f->ssl, f->fd) == 1 && SSL_connect(f->ssl) == 1, "no handshake");
	SSL_CTX_free(ctx);
}

/* The keys of TLS 1.2 with AES-128-GCM: RFC 5246, 6.3, and RFC 5288. */
static void take_keys(struct flood *f)
{
	unsigned char master[48], seed[13 + 64] = "key expansion", block[16 + 16 + 4 + 4];
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "TLS1-PRF", NULL);
	EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
	char digest[] = "SHA256";
	OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SECRET, master, sizeof(master)),
		OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SEED, seed, sizeof(seed)),
		OSSL_PARAM_construct_end()};

	need(SSL_SESSION_get_master_key(SSL_get_session(f->ssl), master, sizeof(master)) == sizeof(master) &&
			SSL_get_server_random(f->ssl, seed + 13, 32) == 32 &&
			SSL_get_client_random(f->ssl, seed + 45, 32) == 32,
		"no secrets");
	need(ctx != NULL && EVP_KDF_derive(ctx, block, sizeof(block), params) == 1, "no keys");
	memcpy(f->iv, block + 32, sizeof(f->iv));
	f->cipher = EVP_CIPHER_CTX_new();
	need(f->cipher != NULL &&
			EVP_EncryptInit_ex(f->cipher, EVP_aes_128_gcm(), NULL, block, NULL) == 1,
		"no cipher");
	f->sequence = 1; /* after Finished */
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
}

static void put_number(unsigned char *out, unsigned long number)
{
	for (int i = 8; i-- > 0; number >>= 8)
		out[i] = (unsigned char)number;
}

static void make_record(struct flood *f, unsigned char *out)
{
	static const unsigned char hello[4] = {1, 0, 0, 0};
	unsigned char nonce[12], head[13];
	int n;

	memcpy(out, "\x16\x03\x03\x00", 4);
	out[4] = RECORD - 5;
	put_number(out + 5, f->sequence);
	memcpy(nonce, f->iv, 4);
	memcpy(nonce + 4, out + 5, 8);
	put_number(head, f->sequence++);
	memcpy(head + 8, "\x16\x03\x03\x00\x04", 5);
	need(EVP_EncryptInit_ex(f->cipher, NULL, NULL, NULL, nonce) == 1 &&
			EVP_EncryptUpdate(f->cipher, NULL, &n, head, sizeof(head)) == 1 &&
			EVP_EncryptUpdate(f->cipher, out + 13, &n, hello, sizeof(hello)) == 1 &&
			EVP_EncryptFinal_ex(f->cipher, out + 17, &n) == 1 &&
			EVP_CIPHER_CTX_ctrl(f->cipher, EVP_CTRL_AEAD_GET_TAG, 16, out + 17) == 1,
		"no record");
}

/* False: the connection has ended. */
static int send_hellos(struct flood *f)
{
	unsigned char batch[BATCH * RECORD];

	for (size_t i = 0; i < BATCH; i++)
		make_record(f, batch + i * RECORD);
	f->sent += BATCH;
	return send(f->fd, batch, sizeof(batch), MSG_NOSIGNAL) == (ssize_t)sizeof(batch);
}

static int send_key_update(struct flood *f)
{
	f->sent++;
	return SSL_key_update(f->ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(f->ssl) == 1;
}

static int take_back(struct flood *f, int flags)
{
	char data[16384];
	ssize_t n;

	while ((n = recv(f->fd, data, sizeof(data), flags)) > 0)
		f->back += (unsigned long)n;
	return n < 0 && errno == EAGAIN;
}

int main(int argc, char **argv)
{
	struct flood f = {0};
	unsigned long count = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
	struct timeval pause = {.tv_sec = 2};
	int keys, open = 1;

	need(count > 0, "usage: tls-flood PORT renegotiation|keys COUNT");
	signal(SIGPIPE, SIG_IGN);
	keys = strcmp(argv[2], "keys") == 0;
	connect_to(&f, atoi(argv[1]), keys ? TLS1_3_VERSION : TLS1_2_VERSION);
	if (!keys)
		take_keys(&f);
	while (open && f.sent < count) {
		open = keys ? send_key_update(&f) : send_hellos(&f);
		open = open && take_back(&f, MSG_DONTWAIT);
	}
	if (open) { /* the end may be on its way */
		(void)setsockopt(f.fd, SOL_SOCKET, SO_RCVTIMEO, &pause, sizeof(pause));
		open = take_back(&f, 0);
	}
	printf("%s %lu %lu\n", open ? "open" : "ended", f.sent, f.back);
	EVP_CIPHER_CTX_free(f.cipher);
	SSL_free(f.ssl);
	return 0;
}
