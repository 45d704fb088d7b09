"""What only `boom.admin` asks: reports and changes of groups, subscriptions and transactions."""
