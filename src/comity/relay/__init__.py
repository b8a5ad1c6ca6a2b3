"""The transport between organisations: sites and coordinator connect to a relay, a `nats-server` that this package
configures. A member's key allows one thing, and no member can run anything at another."""
