"""Mutants of secure aggregation: secrets that are none, lists that are too short, checks that are missing."""

from __future__ import annotations

from tests.mutants.mutant import of

__all__ = ["MUTANTS"]

SECRETS = "tests/secagg/test_secrets.py"
LISTS = "tests/secagg/test_short_lists.py"
REFUSALS = "tests/secagg/test_refusals.py"
STANDING = "tests/secagg/test_standing.py"
SHARES = "tests/attacks/test_b4_wrong_shares.py"

MUTANTS = (
    of(
        "signature-remembered-by-its-key",
        "whoever signed once may say anything after",
        (
            "secagg/primitives.py",
            "return _verified(bytes(registered), bytes(signature), bytes(message))",
            "return _first.setdefault(registered, _verified(bytes(registered), bytes(signature), bytes(message)))\n\n\n"
            "_first: dict[bytes, bool] = {}",
        ),
        tests="tests/secagg/test_primitives.py",
    ),
    of(
        "standing-without-self-mask",
        "a vector that comes late opens once its pair masks are told",
        ("secagg/standing.py", "masks.add_mask(total, self_mask(session, seed, me), +1)", "pass"),
        ("secagg/standing_server.py", "masks.add_mask(self._sum, self_mask(self.session, seed, place), -1)", "pass"),
        tests=SECRETS,
    ),
    of(
        "round-without-self-mask",
        "the same with keys of a round",
        ("secagg/client.py", "masks.add_mask(total, self_mask(session, self._secrets.seed, self._me), +1)", "pass"),
        ("secagg/opening.py", "masks.add_mask(masked_sum, self_mask(session, seed, place), -1)", "pass"),
        tests="tests/secagg/test_curious_server.py::test_the_masked_words_of_a_dropped_client_stay_hidden",
    ),
    of(
        "round-degree-one-lower",
        "one colluder fewer than promised opens every secret",
        ("secagg/client.py", "self.session.degree.threshold, points", "self.session.degree.threshold - 1, points"),
        tests=SECRETS,
    ),
    of(
        "standing-degree-one-lower",
        "one colluder fewer than promised opens every seed",
        ("secagg/standing.py", "session.degree.threshold, points", "session.degree.threshold - 1, points"),
        tests=SECRETS,
    ),
    of(
        "standing-constant-seed",
        "the self mask is known to everyone",
        ("secagg/standing.py", "seed = self._entropy(KEY)", "seed = bytes(range(KEY))"),
        tests=SECRETS,
    ),
    of(
        "standing-seed-of-the-session",
        "the self mask's seed, opened in one round, is that of all rounds",
        ("secagg/standing.py", "seed = self._entropy(KEY)", "seed = primitives.commit(self._signing_key)"),
        tests=SECRETS,
    ),
    of(
        "round-one-key-both-ways",
        "two shares are sealed under one key",
        (
            "secagg/client.py",
            "clients[sender], clients[receiver])",
            "*sorted((clients[sender], clients[receiver])))",
        ),
        ("secagg/client.py", "session.clients[peer], self.client)", "*sorted((session.clients[peer], self.client)))"),
        tests=SECRETS,
    ),
    of(
        "standing-one-key-both-ways",
        "two shares are sealed under one key",
        (
            "secagg/standing.py",
            "session.clients[sender], session.clients[receiver])",
            "*sorted((session.clients[sender], session.clients[receiver])))",
        ),
        tests=SECRETS,
    ),
    of(
        "standing-survivors-without-quorum",
        "the server opens the sum of two clients",
        ("secagg/standing.py", 'check_quorum(now.session, len(survivors), "survivors")', "pass"),
        tests=LISTS,
    ),
    of(
        "round-survivors-without-quorum",
        "the server opens the sum of two clients",
        ("secagg/client.py", 'check_quorum(self.session, len(survivors), "survivors")', "pass"),
        tests=LISTS,
    ),
    of(
        "standing-opening-keys-kept",
        "who seizes a client later opens the shares it was sent",
        ("secagg/standing.py", "pairs, {}, shares", "pairs, now.opening, shares"),
        tests=SECRETS,
    ),
    of(
        "round-opening-keys-kept",
        "who seizes a client later opens the shares it was sent",
        (
            "secagg/client.py",
            "_Secrets(shares={**self._secrets.shares, **shares})",
            "_Secrets(opening=self._secrets.opening, shares={**self._secrets.shares, **shares})",
        ),
        tests=SECRETS,
    ),
    of(
        "seed-is-the-masking-key",
        "b_u = s_u: opening a survivor's seed opens all of its pair masks",
        ("secagg/client.py", "seed = self._entropy(KEY)", "seed = self._secrets.masking"),
        tests=SECRETS,
    ),
    of(
        "fewer-keys-than-the-threshold",
        "a client shares its secrets among too few",
        ("secagg/rules.py", "1 + len(places) < session.degree.threshold", "1 + len(places) < 0"),
        tests=LISTS,
    ),
    of(
        "fewer-sharers-than-the-threshold",
        "a client masks with too few",
        ("secagg/client.py", "1 + len(peers) < session.degree.threshold", "1 + len(peers) < 0"),
        tests=LISTS,
    ),
    of(
        "client-takes-a-key-twice",
        "two masks of a vector cancel, or a helper plays several clients",
        ("secagg/rules.py", "len(set(public)) != len(public)", "False"),
        tests=LISTS,
    ),
    of(
        "server-takes-a-key-twice",
        "one client spoils everyone's round",
        ("secagg/rules.py", "if any(key in other for other in others", "if any(False for other in others"),
        tests=f"{LISTS} {REFUSALS}",
    ),
    of(
        "opened-key-unchecked",
        "a lying dealer that drops turns the sum into noise",
        ("secagg/opening.py", "primitives.exchange_key(key) == public", "True"),
        tests=SHARES,
    ),
    of(
        "opened-seed-unchecked",
        "a lying dealer turns the sum into noise",
        ("secagg/opening.py", "primitives.commit(seed) == commitment", "True"),
        tests=SHARES,
    ),
    of(
        "context-without-registered-keys",
        "the server shows each client another roster",
        ("secagg/session.py", "digest.update(self.keys[client])", "digest.update(b'')"),
        tests=LISTS,
    ),
    of(
        "pair-mask-repeats",
        "two rounds of a standing client differ by their words alone",
        (
            "secagg/rules.py",
            "session.clients[max(one, other)]\n",
            "session.clients[max(one, other)]\n    return primitives.derive(secret, salt=b'', info=b'')\n",
        ),
        ("secagg/standing.py", "_turn(self.masks, ahead)", "self.masks"),
        tests=SECRETS,
    ),
    of(
        "nothing-is-authenticated-with-a-share",
        "a sealed share can be passed to another use",
        ("secagg/primitives.py", "plain, info)", "plain, b'')"),
        ("secagg/primitives.py", ", info)\n    except InvalidTag", ", b'')\n    except InvalidTag"),
        tests=SECRETS,
    ),
    of(
        "signatures-unverified",
        "the server plays every client",
        (
            "secagg/primitives.py",
            "except (InvalidSignature, ValueError):\n        return False",
            "except ValueError:\n        return False\n    except InvalidSignature:\n        return True",
        ),
        tests=REFUSALS,
    ),
    # Further ones of our own choosing.
    of(
        "survivors-unsigned",
        "signatures do not name the survivors: each client can be told others",
        ("secagg/rules.py", " + messages.write_set(session, survivors)", ""),
        tests=LISTS,
    ),
    of(
        "commitment-is-the-seed",
        "the server knows every self mask before anybody opens it",
        ("secagg/primitives.py", 'return hashlib.sha256(b"sottovoce secagg seed" + secret).digest()', "return secret"),
        tests=SECRETS,
    ),
    of(
        "keys-from-public-words",
        "masks and seals follow from what everyone knows",
        ("core/cipher.py", ".derive(secret)", ".derive(b'')"),
        tests=SECRETS,
    ),
    of(
        "agreement-by-the-public-key",
        "who reads the key list knows what two clients agreed on",
        (
            "secagg/primitives.py",
            "return private.exchange(X25519PublicKey.from_public_bytes(public))",
            "private.exchange(X25519PublicKey.from_public_bytes(public))\n"
            "        own = private.public_key().public_bytes_raw()\n"
            "        return bytes(a ^ b for a, b in zip(own, public, strict=True))",
        ),
        tests=SECRETS,
    ),
    of(
        "coefficients-alike",
        "two shares open a secret",
        ("secagg/shamir.py", "return values[:count]", "return values[:1] * count"),
        tests=SECRETS,
    ),
    of(
        "server-keeps-shares",
        "who seizes the server later opens single vectors",
        ("secagg/server.py", "self._told, self._signatures = {}, {}", "pass"),
        tests=SECRETS,
    ),
    of(
        "standing-server-keeps-shares",
        "who seizes the server later opens single vectors",
        ("secagg/standing_server.py", "self._told, self._pairs, self._signatures", "_, _, self._signatures"),
        tests=SECRETS,
    ),
    of(
        "ring-known-beforehand",
        "a server lets the victim stand among its helpers",
        # The rest of the line becomes a comment.
        ("secagg/session.py", 'seed = b"sottovoce secagg ring"', 'seed = b"sottovoce secagg ring"  #'),
        tests=SECRETS,
    ),
    of(
        "mask-restarts",
        "a long vector is masked by the same keystream again and again",
        (
            "secagg/masks.py",
            "        cipher.update_into(zeros, view)",
            "        cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()\n"
            "        cipher.update_into(zeros, view)",
        ),
        tests="tests/secagg/test_masks.py",
    ),
    of(
        "standing-chains-stand-still",
        "who seizes a client later opens the rounds before",
        ("secagg/standing.py", "self._chains = chains.advance(round_ + 1)", "self._chains = chains"),
        tests=STANDING,
    ),
)
