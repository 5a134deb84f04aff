/*
 * tls_memory.c - where OpenSSL keeps what it knows, and how it gets the text of private keys.
 *
 * Sessions, decrypted bytes and private keys lie in OpenSSL's memory: all of it is undumped.h's, so that a core dump
 * shows none. stdio would leave a key's file in a freed buffer of its own, so files are read here.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <unistd.h>

#include "base/undumped.h"
#include "tls/tls_internal.h"

#define FILE_MOST ((size_t)4 << 20) /* a system's whole store of authorities has 0.2 MB */

static void *alloc(size_t size, const char *file, int line)
{
	(void)file, (void)line;
	return kvw_undumped_alloc(size);
}

static void *change(void *block, size_t size, const char *file, int line)
{
	(void)file, (void)line;
	return kvw_undumped_realloc(block, size);
}

static void release(void *block, const char *file, int line)
{
	(void)file, (void)line;
	kvw_undumped_free(block);
}

bool kvw_tls_undump(void)
{
	return CRYPTO_set_mem_functions(alloc, change, release) == 1;
}

BIO *kvw_tls_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	BIO *memory = fd < 0 ? NULL : BIO_new(BIO_s_mem());
	char piece[4096];
	size_t total = 0;
	ssize_t n = -1;

	while (memory != NULL && (n = read(fd, piece, sizeof(piece))) > 0) {
		total += (size_t)n;
		errno = EFBIG;
		if (total > FILE_MOST || BIO_write(memory, piece, (int)n) != (int)n) {
			n = -1;
			break;
		}
	}
	if (n < 0) {
		ERR_raise_data(ERR_LIB_SYS, errno, "reading %s", path);
		BIO_free(memory);
		memory = NULL;
	}
	OPENSSL_cleanse(piece, sizeof(piece));
	if (fd >= 0)
		close(fd);
	return memory;
}

/* A server has no terminal to ask for a passphrase. */
static int no_passphrase(char *out, int size, int writing, void *arg)
{
	(void)out, (void)size, (void)writing, (void)arg;
	return -1;
}

bool kvw_tls_use_key(SSL_CTX *ctx, const char *path)
{
	BIO *file = kvw_tls_open(path);
	EVP_PKEY *key = file == NULL ? NULL : PEM_read_bio_PrivateKey(file, NULL, no_passphrase, NULL);
	bool good = key != NULL && SSL_CTX_use_PrivateKey(ctx, key) == 1;

	EVP_PKEY_free(key);
	BIO_free(file);
	return good;
}

bool kvw_tls_use_chain(SSL_CTX *ctx, const char *path)
{
	BIO *file = kvw_tls_open(path);
	X509 *one = file == NULL ? NULL : PEM_read_bio_X509_AUX(file, NULL, no_passphrase, NULL);
	bool good = one != NULL && SSL_CTX_use_certificate(ctx, one) == 1 && SSL_CTX_clear_chain_certs(ctx) == 1;
	unsigned long code;

	X509_free(one);
	while (good && (one = PEM_read_bio_X509(file, NULL, no_passphrase, NULL)) != NULL) {
		good = SSL_CTX_add0_chain_cert(ctx, one) == 1; /* takes it */
		if (!good)
			X509_free(one);
	}
	code = ERR_peek_last_error();
	if (good && ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE)
		ERR_clear_error(); /* the end of the file */
	else if (good && code != 0)
		good = false;
	BIO_free(file);
	return good;
}
