"""Studies: they play experiments to answer a question, such as what an attacker learns about the clients' records."""
