/*
 * err.h - the error codes that functions of kvway return to each other; kvtier.h has its own.
 *
 * The caller of a foreign library turns its code (errno, OpenSSL, curl) into one of these and
 * writes the cause into a log line or message. Results travel through out-parameters, which a
 * failing function leaves untouched.
 */
#ifndef KVW_ERR_H
#define KVW_ERR_H

#define KVW_MUST_CHECK __attribute__((warn_unused_result))

enum kvw_err {
	KVW_OK = 0,
	KVW_ENOMEM,    /* allocation failed */
	KVW_EINVAL,    /* an argument or a configuration value is wrong */
	KVW_ENOWORKER, /* no usable worker */
	KVW_EIO,       /* a system call failed; errno was logged */
	KVW_EAGAIN,    /* nothing now, try later */
	KVW_ETIMEDOUT, /* a deadline passed */
	KVW_EPROTO,    /* the peer or the text violates its format */
	KVW_ELIMIT,    /* a configured limit was reached */
	KVW_ENOTFOUND, /* the thing asked for does not exist */
	KVW_ECLOSED,   /* the peer has closed the connection */
};

#endif
