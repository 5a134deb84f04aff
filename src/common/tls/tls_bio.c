/*
 * tls_bio.c - passes bytes between OpenSSL and the socket of a kvw_io.
 *
 * OpenSSL's own socket BIO calls the kernel each time. This BIO skips useless calls by the socket's
 * flags: after EAGAIN, and after a short read (see kvw_io_readv), so that a message that fits into
 * one buffer costs one system call.
 */
#include <errno.h>
#include <sys/socket.h>

#include "tls/tls_internal.h"

static int raw_read(BIO *bio, char *data, int len)
{
	struct kvw_io *io = BIO_get_data(bio);
	struct kvw_tls_conn *c = io->state;
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (c->flooded) {
		c->error = EPROTO;
		return -1;
	}
	if (!c->raw_readable) {
		BIO_set_retry_read(bio);
		return -1;
	}
	do {
		n = recv(io->fd, data, (size_t)len, 0);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		c->raw_readable = false;
		BIO_set_retry_read(bio);
	} else if (n < 0) {
		c->error = errno;
	} else if (n == 0) {
		c->eof = true;
	} else if (n < len && !io->peer_closed && !io->broken) {
		c->raw_readable = false;
	}
	return (int)n;
}

static int raw_write(BIO *bio, const char *data, int len)
{
	struct kvw_io *io = BIO_get_data(bio);
	struct kvw_tls_conn *c = io->state;
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (!c->raw_writable) {
		BIO_set_retry_write(bio);
		return -1;
	}
	do {
		n = send(io->fd, data, (size_t)len, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		c->raw_writable = false;
		BIO_set_retry_write(bio);
	} else if (n < 0) {
		c->error = errno;
	}
	return (int)n;
}

static long raw_control(BIO *bio, int command, long number, void *pointer)
{
	struct kvw_io *io = BIO_get_data(bio);

	(void)number, (void)pointer;
	if (command == BIO_CTRL_FLUSH)
		return 1;
	if (command == BIO_CTRL_EOF)
		return ((struct kvw_tls_conn *)io->state)->eof;
	return 0;
}

BIO_METHOD *kvw_tls_bio_method(void)
{
	BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "kvw_io");

	if (method == NULL || BIO_meth_set_read(method, raw_read) != 1 ||
		BIO_meth_set_write(method, raw_write) != 1 ||
		BIO_meth_set_ctrl(method, raw_control) != 1) {
		BIO_meth_free(method);
		return NULL;
	}
	return method;
}
