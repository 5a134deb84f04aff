/*
 * err.h - the one list of failures that one file reports to another, but for those of kvtier.h.
 *
 * Foreign codes (errno, OpenSSL, curl) become one of these where they are met; the cause is
 * kept in the log line or message written there. Results travel through out-parameters, which
 * a failing function leaves untouched.
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
	KVW_EPROTO,    /* the peer or the text broke its format */
	KVW_ELIMIT,    /* a configured limit was reached */
	KVW_ENOTFOUND, /* no such thing */
	KVW_ECLOSED,   /* the peer went away */
};

#endif
