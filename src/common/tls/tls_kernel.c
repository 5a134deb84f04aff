/*
 * tls_kernel.c - records that the kernel makes (kTLS), of what we send.
 *
 *   owner --writev--> socket            the kernel cuts and seals
 *   OpenSSL --BIO here--> BIO_s_socket  handshake, tickets and alerts
 *
 * OpenSSL gives the kernel its keys through controls of a BIO, which its public headers do not describe. Its own BIO of
 * sockets answers them; the one here hands it whatever it does not know itself.
 */
#include <endian.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "tls/tls_internal.h"

#define OVERHEAD 22 /* bytes of a record of TLS 1.3 besides its payload: header, type, tag */
#define PARK_NS  (30 * KVW_NS_PER_S)

#ifndef SOL_TLS
#define SOL_TLS 282
#endif

static const char ulp[] = "tls";

bool kvw_tls_kernel_has(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool has;

	if (fd < 0)
		return false;
	/* It knows the name, but takes no socket that is not connected. */
	has = setsockopt(fd, IPPROTO_TCP, TCP_ULP, ulp, sizeof(ulp)) == 0 || errno == ENOTCONN;
	close(fd);
	return has;
}

void kvw_tls_kernel_choose(struct kvw_tls *tls, bool asked)
{
	tls->kernel = asked && kvw_tls_kernel_has();
	tls->kernel_missing = asked && !tls->kernel;
}

bool kvw_tls_kernel_missing(const struct kvw_tls *tls)
{
	return tls->kernel_missing;
}

uint64_t kvw_tls_kernel_sends(const struct kvw_tls *tls)
{
	return atomic_load_explicit(&tls->kernel_sends, memory_order_relaxed);
}

uint64_t kvw_tls_kernel_parked(const struct kvw_tls *tls)
{
	return atomic_load(&tls->parked_count);
}

void kvw_tls_kernel_offer(struct kvw_io *io, struct kvw_tls_conn *c)
{
	if (setsockopt(io->fd, IPPROTO_TCP, TCP_ULP, ulp, sizeof(ulp)) != 0)
		return;
	c->kernel = BIO_new_socket(io->fd, BIO_NOCLOSE);
	if (c->kernel != NULL)
		SSL_set_options(c->ssl, SSL_OP_ENABLE_KTLS);
	ERR_clear_error();
}

/* Records that the kernel has made. */
static bool count_records(int fd, uint64_t *out)
{
	union {
		struct tls_crypto_info info;
		struct tls12_crypto_info_aes_gcm_128 aes_128;
		struct tls12_crypto_info_aes_gcm_256 aes_256;
		struct tls12_crypto_info_chacha20_poly1305 chacha20;
	} keys;
	const unsigned char *number = NULL;
	socklen_t len = sizeof(keys.info);
	uint64_t records;

	if (getsockopt(fd, SOL_TLS, TLS_TX, &keys.info, &len) != 0)
		return false;
	if (keys.info.cipher_type == TLS_CIPHER_AES_GCM_128) {
		len = sizeof(keys.aes_128);
		number = keys.aes_128.rec_seq;
	} else if (keys.info.cipher_type == TLS_CIPHER_AES_GCM_256) {
		len = sizeof(keys.aes_256);
		number = keys.aes_256.rec_seq;
	} else if (keys.info.cipher_type == TLS_CIPHER_CHACHA20_POLY1305) {
		len = sizeof(keys.chacha20);
		number = keys.chacha20.rec_seq;
	}
	if (number == NULL || getsockopt(fd, SOL_TLS, TLS_TX, &keys, &len) != 0)
		return false;
	memcpy(&records, number, sizeof(records));
	OPENSSL_cleanse(&keys, sizeof(keys)); /* stacks are in core dumps */
	*out = be64toh(records);
	return true;
}

/* Bytes that TCP has been given since the connection began: acknowledgements may come between the calls, so at least and at
 * most. */
static bool count_sent(int fd, uint64_t *least, uint64_t *most)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info), again = sizeof(info);
	int queued;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0 || ioctl(fd, SIOCOUTQ, &queued) != 0)
		return false;
	*least = info.tcpi_bytes_acked + (uint64_t)queued;
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &again) != 0)
		return false;
	*most = info.tcpi_bytes_acked + (uint64_t)queued;
	return true;
}

void kvw_tls_kernel_note(int fd, struct kvw_tls_conn *c)
{
	uint64_t least;

	c->kernel_sends = c->kernel != NULL && BIO_get_ktls_send(c->kernel);
	if (!c->kernel_sends)
		return;
	c->kernel_counted = count_records(fd, &c->kernel_records) && count_sent(fd, &least, &c->kernel_sent);
	atomic_fetch_add_explicit(&c->tls->kernel_sends, 1, memory_order_relaxed);
}

bool kvw_tls_kernel_behind(int fd, const struct kvw_tls_conn *c)
{
	uint64_t records, sent, most;

	if (!c->kernel_counted || !count_records(fd, &records) || !count_sent(fd, &sent, &most))
		return true;
	return (int64_t)(sent - c->kernel_sent) <
	       (int64_t)(c->kernel_bytes + OVERHEAD * (records - c->kernel_records));
}

/* Locked. */
static void drop_parked(struct kvw_tls *tls, size_t i)
{
	close(tls->parked[i].fd);
	tls->parked_count--;
	memmove(&tls->parked[i], &tls->parked[i + 1], (tls->parked_count - i) * sizeof(tls->parked[0]));
}

void kvw_tls_kernel_park(struct kvw_io *io, struct kvw_tls *tls)
{
	int copy = fcntl(io->fd, F_DUPFD_CLOEXEC, 0);

	if (copy < 0)
		return;
	/* An epoll set forgets a connection when its last descriptor is closed. */
	(void)epoll_ctl(io->set->fd, EPOLL_CTL_DEL, io->fd, NULL);
	pthread_mutex_lock(&tls->parked_lock);
	if (tls->parked_count == KVW_TLS_PARKED)
		drop_parked(tls, 0);
	tls->parked[tls->parked_count++] = (struct kvw_tls_parked){.fd = copy, .since_ns = kvw_clock_ns()};
	pthread_mutex_unlock(&tls->parked_lock);
}

/* The kernel passes on what it holds soon after TCP has room: what two looks, a second apart, find with nothing to send is done. */
void kvw_tls_kernel_sweep(struct kvw_tls *tls, int64_t now_ns)
{
	pthread_mutex_lock(&tls->parked_lock);
	for (size_t i = tls->parked_count; i-- > 0;) {
		struct kvw_tls_parked *parked = &tls->parked[i];
		int queued = 0;
		bool idle = ioctl(parked->fd, SIOCOUTQ, &queued) != 0 || queued == 0;

		if ((idle && parked->idle) || now_ns - parked->since_ns > PARK_NS)
			drop_parked(tls, i);
		else
			parked->idle = idle;
	}
	pthread_mutex_unlock(&tls->parked_lock);
}

static int kernel_write(BIO *bio, const char *data, int len)
{
	struct kvw_io *io = BIO_get_data(bio);
	struct kvw_tls_conn *c = io->state;
	int n;

	if (c->kernel == NULL || !BIO_get_ktls_send(c->kernel))
		return kvw_tls_raw_write(bio, data, len);
	BIO_clear_retry_flags(bio);
	if (c->rekeyed) {
		c->error = EPROTO;
		return -1;
	}
	if (!c->raw_writable) {
		BIO_set_retry_write(bio);
		return -1;
	}
	do {
		n = BIO_write(c->kernel, data, len);
	} while (n < 0 && errno == EINTR);
	if (n <= 0 && BIO_should_retry(c->kernel)) {
		c->raw_writable = false;
		BIO_set_retry_write(bio);
	} else if (n <= 0) {
		c->error = errno;
	}
	return n;
}

/* TLS 1.3 only: with 1.2 OpenSSL would send refusals of renegotiations through the kernel, and could not try again. */
static long kernel_control(BIO *bio, int command, long number, void *pointer)
{
	struct kvw_io *io = BIO_get_data(bio);
	struct kvw_tls_conn *c = io->state;

	if (command == BIO_CTRL_FLUSH)
		return 1;
	return c == NULL || c->kernel == NULL || SSL_version(c->ssl) != TLS1_3_VERSION
		       ? 0
		       : BIO_ctrl(c->kernel, command, number, pointer);
}

BIO_METHOD *kvw_tls_kernel_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "kvw_io kernel");

	if (method == NULL || BIO_meth_set_write(method, kernel_write) != 1 ||
		BIO_meth_set_ctrl(method, kernel_control) != 1) {
		BIO_meth_free(method);
		return NULL;
	}
	return method;
}
